"""Who a client is: tokens, certificates, and the files that hold them."""
