"""Methods and attributes of the product replaced from outside, for the time of a `with`.

Where the simulation is compiled, calls are bound when that is done. What is to be replaced has a hook there
(`compiled/rewrite.py`): the method asks a global of its module first, and goes on as `NAME__plain`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any
from unittest import mock


@contextmanager
def replaced(owner: type, name: str, wrap: Callable[[Any], Any]) -> Iterator[None]:
    """`wrap` takes the method as it is, and gives what stands in its place."""
    stand_in = wrap(as_it_is(owner, name))
    if is_hooked(owner, name):
        with mock.patch(hook_of(owner, name), stand_in):
            yield
    else:
        with mock.patch.object(owner, name, stand_in):
            yield


@contextmanager
def told(owner: type, name: str, changed: Callable[[Any, Any], object]) -> Iterator[None]:
    """`changed` hears, at each assignment of an attribute, the value before (None at first) and after."""

    hidden = f"_{name}"

    def change(self: Any, value: Any) -> None:
        before = self.__dict__.get(hidden)
        self.__dict__[hidden] = value
        changed(before, value)

    if is_hooked(owner, name):
        with mock.patch(hook_of(owner, name), changed):
            yield
    else:
        # Reading it stays as quick as C can make it.
        with mock.patch.object(owner, name, property(attrgetter(hidden), change), create=True):
            yield


def replace_on(thing: object, name: str, stand_in: Callable[..., Any] | None) -> None:
    """A method of one object, until None makes it what it was."""
    if is_hooked(type(thing), name):
        setattr(thing, f"hook_{name}", stand_in)
    elif stand_in is not None:
        setattr(thing, name, stand_in)
    else:
        delattr(thing, name)


def as_it_is(owner: type, name: str) -> Any:
    """The method that a hook of it goes on to."""
    return getattr(owner, f"{name}__plain" if is_hooked(owner, name) else name)


def is_hooked(owner: type, name: str) -> bool:
    """Raises TypeError where a replacement would be of no effect."""
    hooked = hasattr(owner, f"{name}__plain")
    if not hooked and is_compiled(owner):
        raise TypeError(f"{owner.__name__}.{name} is compiled, and has no hook (see compiled/__main__.py)")
    return hooked


def is_compiled(owner: type) -> bool:
    return hasattr(owner, "__mypyc_attrs__")


def hook_of(owner: type, name: str) -> str:
    """The global that is asked first, by its full name. Of the class that defines what is replaced."""
    defines = next((one for one in owner.__mro__ if name in vars(one)), owner)
    return f"{defines.__module__}.hook_{defines.__name__}_{name}"
