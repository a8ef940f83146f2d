"""The ASGI application: lets requests in and finds who answers them."""
