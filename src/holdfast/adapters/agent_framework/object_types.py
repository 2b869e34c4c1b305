"""How objects of known classes become data, and objects again.

The framework's own classes are listed here, and the user adds those of an application. Stored data
names a class only by its key in this list: nothing that the data names is imported or looked up.

message     a ``Message`` or ``Content``, as its ``to_dict`` and ``from_dict`` have it
fields      a dataclass, or another class of the framework, by its attributes
model       a pydantic model, if ``model_validate`` of its ``model_dump`` is equal to it
enum        a member of an enum, by its value
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Mapping
from typing import Any

from agent_framework import (
    AgentExecutorRequest,
    AgentExecutorResponse,
    AgentResponse,
    AgentResponseUpdate,
    AgentSession,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    Message,
    SubWorkflowRequestMessage,
    SubWorkflowResponseMessage,
    WorkflowCheckpoint,
    WorkflowErrorDetails,
    WorkflowEvent,
    WorkflowEventSource,
    WorkflowInvocationKwargs,
    WorkflowMessage,
    WorkflowRunState,
)

from holdfast.errors import IntegrityError, UnsupportedValueError, short_repr

MESSAGE = "message"
FIELDS = "fields"
MODEL = "model"
ENUM = "enum"

NOT_STORED = frozenset(("raw_representation",))
"""Objects of a model's SDK, which the framework's own storages leave out, too."""
SCALARS = frozenset((type(None), bool, int, float, str))


@dataclasses.dataclass(frozen=True, slots=True)
class ObjectType:
    """A class whose objects can be stored."""

    name: str
    """The name in stored data."""
    kind: str
    cls: type[Any]
    template: Any = None
    """An object of a class that is not a dataclass, for the attributes that it has."""

    def list_fields(self, value: Any) -> dict[str, Any]:
        """Return the attributes of an object that are stored."""
        if dataclasses.is_dataclass(self.cls):
            names: Iterable[str] = (each.name for each in dataclasses.fields(self.cls))
            return {name: getattr(value, name) for name in names if hasattr(value, name)}
        return {name: each for name, each in vars(value).items() if name not in NOT_STORED}

    def build(self, fields: Mapping[str, Any]) -> Any:
        """Return an object with these attributes; those that are missing have their defaults.

        It is built like a copy, without a call of ``__init__``.

        Raises:
            IntegrityError: An attribute is unknown, or one without a default is missing.

        """
        known = self._default_fields()
        unknown = fields.keys() - known.keys()
        found = {**known, **fields}
        missing = [name for name, value in found.items() if value is dataclasses.MISSING]
        if unknown or missing:
            raise IntegrityError(
                f"stored {self.name} has the wrong fields: {sorted(unknown) or missing} "
                f"{'unknown' if unknown else 'missing'}; use the class as it was when it was "
                "stored, or give new fields a default"
            )
        built: Any = object.__new__(self.cls)
        for name, value in found.items():
            object.__setattr__(built, name, value)
        return built

    def _default_fields(self) -> dict[str, Any]:
        if not dataclasses.is_dataclass(self.cls):
            return dict.fromkeys(vars(self.template)) | {
                name: value for name, value in vars(self.template).items() if type(value) in SCALARS
            }
        return {
            each.name: each.default
            if each.default_factory is dataclasses.MISSING
            else each.default_factory()
            for each in dataclasses.fields(self.cls)
        }


DATACLASSES: tuple[type[Any], ...] = (
    AgentExecutorRequest,
    AgentExecutorResponse,
    SubWorkflowRequestMessage,
    SubWorkflowResponseMessage,
    WorkflowCheckpoint,
    WorkflowErrorDetails,
    WorkflowInvocationKwargs,
    WorkflowMessage,
)
TEMPLATES: tuple[Any, ...] = (
    AgentResponse(),
    AgentResponseUpdate(),
    AgentSession(session_id="template"),
    ChatResponse(),
    ChatResponseUpdate(),
    WorkflowEvent("started"),
)
ENUMS: tuple[type[enum.Enum], ...] = (
    type(WorkflowMessage(None, "").type),  # has no public name
    WorkflowEventSource,
    WorkflowRunState,
)
FRAMEWORK_TYPES: tuple[ObjectType, ...] = (
    *(ObjectType(cls.__name__, MESSAGE, cls) for cls in (Message, Content)),
    *(ObjectType(cls.__name__, FIELDS, cls) for cls in DATACLASSES),
    *(ObjectType(type(each).__name__, FIELDS, type(each), each) for each in TEMPLATES),
    *(ObjectType(cls.__name__, ENUM, cls) for cls in ENUMS),
)


def describe_type(cls: object) -> ObjectType:
    """Return how objects of a class of the user are stored.

    Raises:
        TypeError: It is not a dataclass, an enum or a pydantic model.

    """
    if isinstance(cls, type):
        name = f"{cls.__module__}:{cls.__qualname__}"
        if issubclass(cls, enum.Enum):
            return ObjectType(name, ENUM, cls)
        if hasattr(cls, "model_dump") and hasattr(cls, "model_validate"):
            return ObjectType(name, MODEL, cls)
        if dataclasses.is_dataclass(cls) and can_build(cls):
            return ObjectType(name, FIELDS, cls)
    raise TypeError(
        f"types must be dataclasses, enums or pydantic models, got {short_repr(cls)}; "
        "register other classes, and dataclasses that are exceptions or containers, with "
        "holdfast.register_type"
    )


def can_build(cls: type[Any]) -> bool:
    """Return whether an object of a dataclass has nothing but its fields."""
    try:
        object.__new__(cls)
    except TypeError:
        return False
    return True


def dump_model(model: Any, path: str) -> Any:
    """Return a pydantic model as data, of which ``model_validate`` makes an equal one.

    Raises:
        UnsupportedValueError: It does not, for example because of private attributes.

    """
    problem = "another value"
    try:
        tree = model.model_dump(by_alias=True, round_trip=True, warnings=False)
        if type(model).model_validate(tree) == model:
            return tree
    except (TypeError, ValueError) as error:
        problem = f"{type(error).__name__}: {error}"
    raise UnsupportedValueError(
        f"model {short_repr(model)} does not come back from its model_dump(), at {path}: "
        f"{problem}; change the model, or store a dataclass",
        path,
    )


def validate_message(message: Message | Content, path: str) -> None:
    """Check that ``to_dict`` of a message loses nothing, because it leaves out what is not JSON.

    Raises:
        UnsupportedValueError: A part of the message is not JSON; the error has its path.

    """
    for name, value in vars(message).items():
        if name not in NOT_STORED:
            validate_message_part(value, f"{path}.{name}")


def validate_message_part(value: object, path: str) -> None:
    """Check a part of a message, see `validate_message`."""
    if type(value) in SCALARS:
        return
    if isinstance(value, Message | Content):
        validate_message(value, path)
    elif isinstance(value, dict):
        for key, each in value.items():
            if not isinstance(key, str):
                raise UnsupportedValueError(
                    f"keys in a message must be str, got {short_repr(key)}, at {path}", path
                )
            validate_message_part(each, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            validate_message_part(each, f"{path}[{number}]")
    elif not isinstance(value, str | int | float):
        raise UnsupportedValueError(
            f"a message holds {short_repr(value)} of type {type(value).__name__}, at {path}; "
            "only JSON can be stored in a message",
            path,
        )
