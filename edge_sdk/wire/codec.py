"""One codec for every message: a frozen dataclass is a msgpack array of its fields in order.

Trailing fields that hold their default are left out; unknown trailing elements are
ignored, so that a newer peer may add fields. Anything else that does not fit is a
`MalformedMessage` that names the field.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar

import msgpack

from edge_sdk.errors import InvalidRequest, MalformedMessage, MessageTooLarge
from edge_sdk.wire import limits

M = TypeVar("M")

_Read = Callable[[Any, str], Any]


def encode(message: Any) -> bytes:
    """Bytes of a message.

    Raises:
        InvalidRequest: a field holds what msgpack cannot write, e.g. text with half a
            surrogate pair.
    """
    try:
        data: bytes = msgpack.packb(_plain(message), use_bin_type=True)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidRequest(f"{type(message).__name__} cannot be written: {error}") from error
    return data


def decode(cls: type[M], data: bytes, *, limit: int) -> M:
    """Read a message of an untrusted peer.

    Args:
        cls: the frozen dataclass to build; its `__post_init__` may check values.
        data: the body.
        limit: most bytes allowed.

    Raises:
        MessageTooLarge: more than `limit` bytes.
        MalformedMessage: not msgpack, nested too deep, or a field is missing or ill-typed.
        InvalidRequest: a value is refused by the message itself.
    """
    name = cls.__name__
    if len(data) > limit:
        raise MessageTooLarge(f"{name}: a body of {len(data)} bytes is over the limit of {limit}")
    try:
        _check_lengths(data)
        plain = msgpack.unpackb(
            data,
            raw=False,
            strict_map_key=True,
            max_str_len=limit,
            max_bin_len=limit,
            max_array_len=limits.MAX_TOKENS,
            max_map_len=limits.MAX_OPTIONS,
            max_ext_len=0,
        )
    except (ValueError, RecursionError, TypeError, msgpack.OutOfData) as error:
        # Deep nesting ends here too: the unpacker's own stack is bounded.
        raise MalformedMessage(f"{name}: the body is not valid msgpack ({error})") from error
    return typing.cast(M, _message_reader(cls)(plain, name))


def _check_lengths(data: bytes) -> None:
    """Go over the body without building anything, so that lengths that it only claims to
    have reserve no memory."""
    unpacker = msgpack.Unpacker(max_buffer_size=max(1, len(data)))
    unpacker.feed(data)
    unpacker.skip()


_FIELDS: dict[Any, list[tuple[str, Any]]] = {}


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind is tuple or kind is list:
        return [_plain(item) for item in value]
    if not dataclasses.is_dataclass(value):
        return value
    fields = _FIELDS.get(kind)
    if fields is None:
        fields = _FIELDS[kind] = [(field.name, _default(field)) for field in _fields(kind)]
    values = [getattr(value, name) for name, _ in fields]
    while values and values[-1] == fields[len(values) - 1][1]:
        values.pop()
    return [_plain(item) for item in values]


def _default(field: dataclasses.Field[Any]) -> Any:
    """What a field holds if it is left out; `MISSING`, which equals nothing, if it may not be."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _fields(cls: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(cls)


_READERS: dict[Any, _Read] = {}


def _message_reader(cls: Any) -> _Read:
    if cls not in _READERS:
        _READERS[cls] = _new_message_reader(cls)
    return _READERS[cls]


def _new_message_reader(cls: Any) -> _Read:
    hints = typing.get_type_hints(cls)
    fields = [
        (
            field.name,
            _reader(hints[field.name]),
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING,
        )
        for field in _fields(cls)
    ]

    def read(value: Any, where: str) -> Any:
        if not isinstance(value, list):
            raise MalformedMessage(f"{where}: expected an array, got {_name(value)}", field=where)
        values = {}
        for index, (field, reader, required) in enumerate(fields):
            if index < len(value):
                values[field] = reader(value[index], f"{where}.{field}")
            elif required:
                raise MalformedMessage(f"{where}.{field}: missing", field=f"{where}.{field}")
        return cls(**values)

    return read


def _reader(hint: Any) -> _Read:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        readers = [_reader(item) for item in arguments if item is not types.NoneType]
        if len(readers) != 1 or types.NoneType not in arguments:
            raise TypeError(f"a message field may be optional, not a union: {hint}")
        inner = readers[0]
        return lambda value, where: None if value is None else inner(value, where)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _tuple_reader(arguments[0])
    if origin is dict:
        return _read_options
    if dataclasses.is_dataclass(hint):
        return _message_reader(typing.cast("type[Any]", hint))
    if hint in _SCALARS:
        return _SCALARS[hint]
    raise TypeError(f"no reader for message fields of type {hint}")


def _tuple_reader(item: Any) -> _Read:
    reader = _reader(item)

    def read(value: Any, where: str) -> Any:
        if not isinstance(value, list):
            raise MalformedMessage(f"{where}: expected an array, got {_name(value)}", field=where)
        if item is int and set(map(type, value)) <= {int}:
            return tuple(value)
        return tuple(reader(element, f"{where}[{i}]") for i, element in enumerate(value))

    return read


def _read_options(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MalformedMessage(f"{where}: expected a map, got {_name(value)}", field=where)
    for key, item in value.items():
        if not isinstance(key, str) or not isinstance(item, str | int | float):
            raise MalformedMessage(
                f"{where}.{key}: expected a string, number or boolean", field=f"{where}.{key}"
            )
    return value


def _scalar(kind: type[Any], name: str) -> _Read:
    def read(value: Any, where: str) -> Any:
        if type(value) is not kind:
            raise MalformedMessage(f"{where}: expected {name}, got {_name(value)}", field=where)
        return value

    return read


def _read_float(value: Any, where: str) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise MalformedMessage(f"{where}: expected a finite number, got {value!r}", field=where)
    return float(value)


def _name(value: Any) -> str:
    return "nothing" if value is None else type(value).__name__


_SCALARS: dict[Any, _Read] = {
    int: _scalar(int, "an integer"),
    bool: _scalar(bool, "a boolean"),
    str: _scalar(str, "a string"),
    bytes: _scalar(bytes, "bytes"),
    float: _read_float,
}
