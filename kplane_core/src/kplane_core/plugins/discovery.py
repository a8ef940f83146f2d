"""Discovery: installed plugins are found by metadata, loaded one by one when needed, and never stop one another."""

import contextlib
import inspect
import io
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, cast

import attrs
import pluggy

from kplane_core.errors import KplaneError
from kplane_core.plugins.backends import Backend, Backends
from kplane_core.plugins.checks import HealthChecks
from kplane_core.plugins.errors import (
    BlockedPlugin,
    BrokenPlugin,
    DuplicateBackend,
    FlagConflict,
    IncompatiblePlugin,
    InvalidPlugin,
    UnknownBackend,
    UnmetRequirement,
    suggestion,
)
from kplane_core.plugins.flags import Flags
from kplane_core.plugins.hookspecs import PROJECT, CorePlugin, KplaneSpecs, hook_names, is_marked
from kplane_core.plugins.requirements import unmet

if TYPE_CHECKING:
    from importlib_metadata import EntryPoint

    from kplane_core.engine.factory import Connection
    from kplane_core.storage.interface import Store
    from kplane_core.storage.resource import Resource

#: Plugins that provide a backend; the entry point's name is the backend's name. Loaded when selected.
BACKENDS_GROUP = "kplane.backends"
#: Plugins that add to whatever backend is selected (tracing, fault injection). Always loaded.
EXTENSIONS_GROUP = "kplane.extensions"

DISABLE_VARIABLE = "KPLANE_DISABLE_PLUGINS"
STRICT_VARIABLE = "KPLANE_STRICT_PLUGINS"


class PluginStatus(StrEnum):
    """How far a plugin has come."""

    OK = "ok"
    BROKEN = "broken"
    BLOCKED = "blocked"
    INCOMPATIBLE = "incompatible"
    DUPLICATE = "duplicate"
    NOT_LOADED = "not loaded"


@attrs.frozen
class Loaded:
    """One installed plugin and what became of it.

    Attributes:
        name: its entry point's name.
        group: its entry point's group.
        distribution: who provides it.
        version: that distribution's version.
        status: how far it has come.
        plugin: the loaded object, when the status is ok.
        error: why it is not ok; the original exception is chained.
        seconds: how long it took to load.
        printed: whether it printed something to the standard output while it was loaded.
    """

    name: str
    group: str
    distribution: str
    version: str
    status: PluginStatus = PluginStatus.NOT_LOADED
    plugin: object | None = attrs.field(default=None, repr=False, eq=False)
    error: KplaneError | None = attrs.field(default=None, eq=False)
    seconds: float = attrs.field(default=0.0, eq=False)
    printed: bool = attrs.field(default=False, eq=False)

    @property
    def provider(self) -> str:
        """The distribution with its version, for example `kplane-etcd 0.4.1`."""
        return f"{self.distribution} {self.version}"


def discover(
    *,
    disabled: Iterable[str] = (),
    environ: Mapping[str, str] | None = None,
    entry_points: Iterable["EntryPoint"] | None = None,
) -> "Plugins":
    """Find the installed plugins by their metadata; import none of them.

    Args:
        disabled: names of plugins or distributions to leave alone, besides those in `KPLANE_DISABLE_PLUGINS`.
        environ: the environment; by default the process's.
        entry_points: what to look through in place of everything installed.

    Returns:
        The plugins; nothing is kept anywhere else.
    """
    variables = os.environ if environ is None else environ
    listed = variables.get(DISABLE_VARIABLE, "").split(",")
    blocked = {name.strip() for name in (*disabled, *listed)} - {""}
    if entry_points is None:
        entry_points = installed(BACKENDS_GROUP, EXTENSIONS_GROUP)
    strict = variables.get(STRICT_VARIABLE, "") not in {"", "0"}
    return Plugins(entry_points, blocked=blocked, strict=strict)


def installed(*groups: str) -> Sequence["EntryPoint"]:
    """Return the entry points of some groups, one group after the other, each sorted by name and distribution."""
    # Imported here: it is the dearest import of all, and `kplane --version` needs no plugin.
    from importlib_metadata import entry_points  # noqa: PLC0415

    everything = entry_points()  # which reads about all that is installed, however little is asked for
    return [found for group in groups for found in sorted(everything.select(group=group), key=_order)]


def _order(entry_point: "EntryPoint") -> tuple[str, ...]:
    return (entry_point.name, *provided_by(entry_point))


def provided_by(entry_point: "EntryPoint") -> tuple[str, str]:
    """Return name and version of the distribution that provides an entry point."""
    if entry_point.dist is None:
        return "an unknown distribution", "0"
    return entry_point.dist.name, entry_point.dist.version


class Plugins:
    """The installed plugins of one process, loaded as far as was asked.

    Args:
        entry_points: where they are.
        blocked: names of plugins or distributions to leave alone.
        strict: raise the first problem instead of recording it.
    """

    def __init__(
        self, entry_points: Iterable["EntryPoint"], *, blocked: Iterable[str] = (), strict: bool = False
    ) -> None:
        self._manager = pluggy.PluginManager(PROJECT)
        self._manager.add_hookspecs(KplaneSpecs)
        self._core = CorePlugin()
        self._manager.register(self._core, name="kplane-core")
        self._backends = Backends()
        self.strict = strict
        self._found: list[tuple[Loaded, EntryPoint]] = [
            (Loaded(found.name, found.group, *provided_by(found)), found) for found in sorted(entry_points, key=_order)
        ]
        self.unknown_blocked = self._block(set(blocked))
        self._reject_duplicates()

    @property
    def loaded(self) -> tuple[Loaded, ...]:
        """Every installed plugin with its status, sorted by name."""
        return tuple(sorted((one for one, _ in self._found), key=lambda one: (one.name, one.provider)))

    @property
    def problems(self) -> tuple[Loaded, ...]:
        """The plugins that cannot be used although nobody switched them off."""
        fine = {PluginStatus.OK, PluginStatus.BLOCKED, PluginStatus.NOT_LOADED}
        return tuple(one for one in self.loaded if one.status not in fine)

    @property
    def backends(self) -> Backends:
        """The registry of the backends loaded so far."""
        return self._backends

    def backend_names(self) -> tuple[str, ...]:
        """Return the names of all backends that are installed and not switched off, loaded or not."""
        names = {one.name for one, _ in self._found if one.group == BACKENDS_GROUP and one.status in _USABLE}
        return tuple(sorted(names | set(self._backends.names())))

    def installed_names(self) -> tuple[str, ...]:
        """Return the entry points' names of everything installed, switched off or broken or not."""
        return tuple(sorted({one.name for one, _ in self._found}))

    def provider(self, name: str) -> str:
        """Return the distribution with its version behind an entry point's name."""
        return next((one.provider for one, _ in self._found if one.name == name), "an unknown distribution")

    def select(self, name: str) -> Backend:
        """Load what is needed for one backend, and return it.

        Args:
            name: the backend's name or an alias.

        Raises:
            UnknownBackend: nothing installed provides it.
            BlockedPlugin: it is switched off.
            BrokenPlugin: it failed to load; the original exception is chained.
            IncompatiblePlugin: it speaks another plugin API.
            DuplicateBackend: several distributions claim it.
        """
        if name not in self._backends:
            if any(one.name == name and one.group == BACKENDS_GROUP for one, _ in self._found):
                self.load(name)
            else:
                # An alias is only known to the plugin itself.
                self.load_all()
        try:
            return self._backends.get(name)
        except UnknownBackend as error:
            raise UnknownBackend(name, {*error.installed, *self.backend_names()}) from None

    def load(self, name: str) -> None:
        """Load the plugins of this entry point's name, unless that was done or they are switched off.

        Raises:
            KplaneError: in strict mode only, what is wrong with the first broken one.
        """
        for index, (one, entry_point) in enumerate(self._found):
            if one.name == name and one.status is PluginStatus.NOT_LOADED:
                self._found[index] = (self._load(one, entry_point), entry_point)

    def load_extensions(self) -> None:
        """Load every plugin of the group `kplane.extensions`; raises as `load` does."""
        for name in self._names(EXTENSIONS_GROUP):
            self.load(name)

    def load_all(self) -> None:
        """Load every installed plugin that is not switched off; raises as `load` does."""
        for name in self._names(BACKENDS_GROUP, EXTENSIONS_GROUP):
            self.load(name)
        if self.strict:
            for one in self.problems:
                raise cast("KplaneError", one.error)

    def add_flags(self, flags: Flags) -> None:
        """Let every loaded plugin contribute its options; one that fails becomes broken.

        Raises:
            FlagConflict: two owners contribute one flag.
        """
        self._each("kplane_add_flags", lambda one: {"flags": flags.owned_by(one.provider)})

    def health_checks(self) -> HealthChecks:
        """Return the checks that the loaded plugins contribute; a plugin that fails becomes broken."""
        checks = HealthChecks()
        self._each("kplane_add_health_checks", lambda one: {"checks": checks.owned_by(one.provider)})
        return checks

    def build_store(self, backend: Backend, connection: "Connection", resource: "Resource") -> "Store":
        """Return the store of one resource, with whatever the plugins wrap around it.

        Args:
            backend: the selected backend.
            connection: its open connection.
            resource: what the store is for.

        Raises:
            InvalidPlugin: a wrapper lost the store.
        """
        store = self._manager.hook.kplane_build_store(backend=backend, connection=connection, resource=resource)
        if store is None:
            raise InvalidPlugin("a plugin's wrapper of kplane_build_store returned no store")
        return cast("Store", store)

    def _names(self, *groups: str) -> Iterator[str]:
        yield from sorted({one.name for one, _ in self._found if one.group in groups})

    def _block(self, blocked: set[str]) -> tuple[str, ...]:
        matched: set[str] = set()
        for index, (one, entry_point) in enumerate(self._found):
            if hits := blocked & {one.name, one.distribution}:
                matched |= hits
                error = BlockedPlugin(one.name)
                self._found[index] = (attrs.evolve(one, status=PluginStatus.BLOCKED, error=error), entry_point)
                self._fail(one, error)
        return tuple(sorted(blocked - matched))

    def _reject_duplicates(self) -> None:
        claims: dict[tuple[str, str], list[str]] = {}
        for one, _ in self._found:
            if one.status is PluginStatus.NOT_LOADED:
                claims.setdefault((one.group, one.name), []).append(one.provider)
        for index, (one, entry_point) in enumerate(self._found):
            providers = claims.get((one.group, one.name), [])
            if len(providers) > 1 and one.status is PluginStatus.NOT_LOADED:
                error = DuplicateBackend(one.name, providers)
                self._found[index] = (attrs.evolve(one, status=PluginStatus.DUPLICATE, error=error), entry_point)
                self._fail(one, error)

    def _fail(self, one: Loaded, error: KplaneError) -> None:
        if one.group == BACKENDS_GROUP:
            self._backends.fail(one.name, error, distribution=one.provider)

    def _load(self, one: Loaded, entry_point: "EntryPoint") -> Loaded:
        plugin: object | None = None
        printed, began = _Diverted(), time.perf_counter()
        try:
            # What a plugin prints must not end up between the lines of our own output.
            with contextlib.redirect_stdout(printed):
                _check_requirements(one, entry_point)
                plugin = entry_point.load()
                self._admit(one, plugin)
                self._register_backends(one, plugin)
        except Exception as error:  # noqa: BLE001 - whatever a plugin raises must not stop the others
            loaded = self._broken(one, plugin, error)
        else:
            loaded = attrs.evolve(one, status=PluginStatus.OK, plugin=plugin)
        return attrs.evolve(loaded, seconds=time.perf_counter() - began, printed=printed.used)

    def _admit(self, one: Loaded, plugin: object) -> None:
        if self._manager.is_registered(plugin):
            raise InvalidPlugin("its entry point names an object that another entry point names too")
        self._manager.register(plugin, name=f"{one.group}:{one.name}")
        _check_hooks(self._manager, plugin)

    def _register_backends(self, one: Loaded, plugin: object) -> None:
        staged = Backends(one.provider)
        self._call("kplane_register_backends", plugin, registry=staged)
        if one.group == BACKENDS_GROUP and one.name not in staged.names():
            registered = ", ".join(staged.names()) or "none"
            raise InvalidPlugin(
                f"the entry point {one.name!r} must register a backend of that name; it registers: {registered}"
            )
        # An installed plugin's name stays its own, in whatever order the plugins are loaded.
        reserved = {other.name: other for other, _ in self._found if other.group == BACKENDS_GROUP}
        for name in staged.claimed():
            other = reserved.get(name, one)
            if other is not one and other.status in _USABLE:
                raise DuplicateBackend(name, (other.provider, one.provider))
        self._backends.merge(staged)

    def _call(self, hook: str, plugin: object, **arguments: object) -> None:
        """Call one hook of one plugin: pluggy's own fan-out stops at the first exception."""
        others = [other for other in self._manager.get_plugins() if other is not plugin]
        self._manager.subset_hook_caller(hook, others)(**arguments)

    def _each(self, hook: str, arguments: Any) -> None:
        for index, (one, entry_point) in sorted(enumerate(self._found), key=lambda item: item[1][0].name):
            if one.status is not PluginStatus.OK:
                continue
            try:
                with contextlib.redirect_stdout(sys.stderr):
                    self._call(hook, one.plugin, **arguments(one))
            except FlagConflict:
                raise
            except Exception as error:  # noqa: BLE001 - whatever a plugin raises must not stop the others
                self._found[index] = (self._broken(one, one.plugin, error), entry_point)

    def _broken(self, one: Loaded, plugin: object | None, error: Exception) -> Loaded:
        if plugin is not None and self._manager.is_registered(plugin):
            self._manager.unregister(plugin)
        status, told = _judge(one, error)
        if self.strict:
            raise told
        self._fail(one, told)
        return attrs.evolve(one, status=status, plugin=None, error=told)


_USABLE = {PluginStatus.OK, PluginStatus.NOT_LOADED}


class _Diverted(io.TextIOBase):
    """Takes what a plugin prints to the standard error stream, and remembers that there was something.

    Attributes:
        used: whether there was.
    """

    used = False

    def write(self, text: str) -> int:
        self.used = self.used or bool(text)
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def _check_requirements(one: Loaded, entry_point: "EntryPoint") -> None:
    """Refuse a plugin that was made for another core before its import fails in some obscure way.

    Raises:
        UnmetRequirement: says which core it requires.
    """
    if entry_point.dist is None:
        return
    # Imported here for the same reason as in `installed`.
    from importlib_metadata import version  # noqa: PLC0415

    core = version("kplane-core")
    if requirement := unmet(entry_point.dist.requires, core):
        raise UnmetRequirement(one.name, one.provider, requirement, core)


def _judge(one: Loaded, error: Exception) -> tuple[PluginStatus, KplaneError]:
    if isinstance(error, IncompatiblePlugin):
        return PluginStatus.INCOMPATIBLE, error
    if isinstance(error, DuplicateBackend):
        return PluginStatus.DUPLICATE, error
    first_line = str(error).strip().split("\n", maxsplit=1)[0]
    reason = first_line if isinstance(error, InvalidPlugin) else f"{type(error).__name__}: {first_line}".rstrip(": ")
    told = BrokenPlugin(one.name, one.provider, reason)
    told.__cause__ = error
    return PluginStatus.BROKEN, told


def _check_hooks(manager: pluggy.PluginManager, plugin: object) -> None:
    """Refuse a plugin whose hooks would be ignored or do harm.

    Raises:
        InvalidPlugin: names the hook and what is wrong with it.
    """
    known = hook_names()
    for name in known:
        found = getattr(plugin, name, None)
        if inspect.isroutine(found) and not is_marked(found):
            raise InvalidPlugin(f"{name} is not marked: decorate it with @hookimpl")
    callers = manager.get_hookcallers(plugin) or []
    if not callers:
        raise InvalidPlugin("it implements no hook: decorate its functions with @hookimpl")
    for caller in callers:
        for implementation in caller.get_hookimpls():
            if implementation.plugin is not plugin:
                continue
            if not caller.has_spec() and not implementation.optionalhook:
                raise InvalidPlugin(f"unknown hook {caller.name!r}{suggestion(caller.name, known)}")
            if inspect.iscoroutinefunction(implementation.function):
                raise InvalidPlugin(f"{caller.name} is an async function: hooks are plain functions")
            wraps = implementation.wrapper or implementation.hookwrapper
            if caller.name == "kplane_build_store" and not wraps:
                raise InvalidPlugin("kplane_build_store may only be wrapped: use @hookimpl(wrapper=True)")
