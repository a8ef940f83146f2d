"""Server-side apply and the record of who owns which field (`metadata.managedFields`)."""

from kplane_apiserver.apply.managers import manager_name
from kplane_apiserver.apply.scaling import ApplyingScale
from kplane_apiserver.apply.tracking import Applying, Tracking

__all__ = ["Applying", "ApplyingScale", "Tracking", "manager_name"]
