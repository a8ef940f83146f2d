"""RBAC as a running server has it: its parts, put together."""

from kplane_apiserver.authorization.rbac.authorizer import RbacAuthorizer
from kplane_apiserver.authorization.rbac.bootstrap import RoleBootstrap
from kplane_apiserver.authorization.rbac.defaults import base
from kplane_apiserver.authorization.rbac.escalation import Escalation
from kplane_apiserver.authorization.rbac.policies import Policies
from kplane_apiserver.settings import Settings
from kplane_apiserver.storing.stores import StoreSet


class Rbac:
    """The roles and bindings of all clusters, at work.

    Args:
        stores: where they are.
        settings: how the server behaves.

    Attributes:
        policies: what is known of them.
        authorizer: decides by them.
        escalation: checks who writes them.
        bootstrap: gives a new cluster its first ones.
    """

    def __init__(self, stores: StoreSet, settings: Settings) -> None:
        self.policies = Policies(stores, base(root=False), base(root=True), settings.root_cluster)
        self.authorizer = RbacAuthorizer(self.policies)
        self.escalation = Escalation(self.policies, self.authorizer)
        self.bootstrap = RoleBootstrap(self.policies, settings)
