"""What can go wrong between kplane and its plugins, and between an operator and the flags."""

from collections.abc import Iterable

from kplane_core.errors import KplaneError, UsageError

#: Backends that kplane's own distributions provide, for the hint when one of them is asked for but not installed.
PROVIDERS = {
    "etcd": "kplane-etcd",
    "etcd3": "kplane-etcd",
    "memory": "kplane-memory",
    "spanner": "kplane-spanner",
    "sqlite": "kplane-sqlite",
}

#: Commands that kplane's own distributions provide, for the same hint.
COMMAND_PROVIDERS = {
    "cluster": "kplane-apiserver",
    "conformance": "kplane-conformance",
    "serve": "kplane-apiserver",
    "spanner": "kplane-spanner",
    "sqlite": "kplane-sqlite",
    "token": "kplane-apiserver",
}

_SHORT = 4
"""So few letters, dashes included, begin too much to be called a beginning."""


def suggestion(name: str, candidates: Iterable[str]) -> str:
    """Return " Did you mean '...'?" with the nearest candidate, or nothing when none is near."""
    # Imported here: only a mistake needs it, and every start would pay for it.
    from difflib import get_close_matches  # noqa: PLC0415

    # The dashes that all flags have in common make none of them more alike.
    plain = {candidate.lstrip("-"): candidate for candidate in sorted(candidates)}
    begun = [one for one in plain if len(name) > _SHORT and one.startswith(name.lstrip("-"))]
    near = begun or get_close_matches(name.lstrip("-"), plain, n=1, cutoff=0.6)
    return f". Did you mean {plain[near[0]]!r}?" if near else ""


class UnknownBackend(UsageError):
    """No installed distribution provides the backend that was asked for.

    Args:
        name: the backend asked for.
        installed: the names that could have been asked for.
    """

    def __init__(self, name: str, installed: Iterable[str]) -> None:
        self.name = name
        self.installed = tuple(sorted(installed))
        if provider := PROVIDERS.get(name):
            message = f"storage backend {name!r} is provided by {provider}, not installed: pip install {provider}"
        else:
            listed = ", ".join(self.installed) or "none (pip install kplane-memory)"
            message = f"unknown storage backend {name!r}; installed: {listed}{suggestion(name, self.installed)}"
        super().__init__(message)


class InvalidPlugin(KplaneError):
    """A plugin breaks a rule of the plugin interface: no hook, an unknown hook, undeclared capabilities."""


class BrokenPlugin(UsageError):
    """An installed plugin cannot be loaded; the cause is chained.

    Args:
        name: its entry point's name.
        distribution: the distribution with its version, for example `kplane-spanner 0.4.1`.
        reason: what happened, in one line.
    """

    def __init__(self, name: str, distribution: str, reason: str) -> None:
        self.name = name
        self.distribution = distribution
        self.reason = reason
        super().__init__(f"{distribution} failed to load: {reason}")


class IncompatiblePlugin(UsageError):
    """A plugin was written for another version of the plugin interface.

    Args:
        name: the backend.
        distribution: the distribution with its version.
        wanted: the interface version that the plugin speaks.
        spoken: the interface version that this core speaks.
    """

    def __init__(self, name: str, distribution: str, wanted: object, spoken: int) -> None:
        self.name = name
        self.distribution = distribution
        self.wanted = wanted
        self.spoken = spoken
        older = isinstance(wanted, int) and wanted < spoken
        package = distribution.split(" ", maxsplit=1)[0]
        remedy = f"pip install -U {package}" if older else "pip install -U kplane-core"
        super().__init__(
            f"{distribution} is incompatible: it speaks plugin API {wanted}, this kplane-core speaks {spoken}: {remedy}"
        )


class UnmetRequirement(IncompatiblePlugin):
    """A plugin's distribution requires another version of the core than the one installed.

    Args:
        name: the backend.
        distribution: the distribution with its version.
        requirement: what it requires of the core, for example `>=0.9`.
        core: the core's version.
    """

    def __init__(self, name: str, distribution: str, requirement: str, core: str) -> None:
        self.name = name
        self.distribution = distribution
        self.wanted = requirement
        package = distribution.split(" ", maxsplit=1)[0]
        remedy = f"pip install -U {package}" if requirement.startswith("<") else "pip install -U kplane-core"
        UsageError.__init__(
            self, f"{distribution} is incompatible: it requires kplane-core {requirement}, this is {core}: {remedy}"
        )


class DuplicateBackend(UsageError):
    """Two distributions claim one backend name.

    Args:
        name: the name or alias that both claim.
        distributions: both, with their versions.
    """

    def __init__(self, name: str, distributions: Iterable[str]) -> None:
        self.name = name
        self.distributions = tuple(distributions)
        claimed = " and ".join(self.distributions)
        super().__init__(f"storage backend {name!r} is claimed by {claimed}: uninstall one of them")


class BlockedPlugin(UsageError):
    """The plugin that was asked for is switched off.

    Args:
        name: its entry point's name.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"plugin {name!r} is switched off by --no-plugin, KPLANE_DISABLE_PLUGINS or no_plugin in the config file"
        )


class FlagConflict(UsageError):
    """Two owners contribute the same flag, environment variable or file key.

    Args:
        what: the flag, variable or key.
        owners: both, with their versions.
    """

    def __init__(self, what: str, owners: Iterable[str]) -> None:
        self.what = what
        self.owners = tuple(owners)
        super().__init__(
            f"{what} is contributed by {' and by '.join(self.owners)}: uninstall or --no-plugin one of them"
        )


class BadConfig(UsageError):
    """A value from a flag, the environment or the config file is refused; the message begins with its source."""
