"""`HoldfastArtifactService`: the artifacts of Google ADK, with all their versions."""

from __future__ import annotations

from typing import Any

from google.adk.artifacts import BaseArtifactService, artifact_util
from google.adk.artifacts.base_artifact_service import ArtifactVersion, ensure_part
from google.adk.errors.input_validation_error import InputValidationError
from google.adk.platform import time as platform_time
from google.genai import types
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from holdfast.adapters.adk.artifact_files import (
    FileVersion,
    VersionedFile,
    list_file_names,
    scope_prefix,
)
from holdfast.adapters.adk.layout import USER_PREFIX
from holdfast.adapters.base import StoreAdapter
from holdfast.errors import IntegrityError, UnsupportedValueError

MAX_REFERENCES = 5
"""How many references to other artifacts a load follows, as in ADK."""
REWOUND = types.Part(
    inline_data=types.Blob(mime_type="application/octet-stream", data=b""),
)
"""What ADK saves as the newest version of an artifact that a rewind removes."""


class HoldfastArtifactService(StoreAdapter, BaseArtifactService):
    """ADK's artifacts in a ``StateStore``, for ``Runner(…, artifact_service=…)``.

    A version is written once and never changed. Concurrent writers of one artifact get different
    versions. Content is checked against its digest when it is loaded.
    """

    async def close(self) -> None:
        """Close the store."""
        await self.aclose()

    async def save_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        artifact: types.Part | dict[str, Any],
        session_id: str | None = None,
        custom_metadata: dict[str, Any] | None = None,
    ) -> int:
        """Save a new version of an artifact and return its number, from 0.

        Raises:
            InputValidationError: The ids, the file name or the artifact are not valid.
            UnsupportedValueError: The metadata cannot be stored as JSON.
            StateStoreError: The store failed.

        """
        part = ensure_part(artifact)
        file = self._file(app_name, user_id, filename, session_id)
        mime_type = find_mime_type(part, app_name, user_id, session_id)
        skeleton, content = split_part(part)
        fields = {
            "part": skeleton,
            "mime_type": mime_type,
            "create_time": platform_time.get_time(),
            "custom_metadata": encode_metadata(custom_metadata or {}),
        }
        return await file.add(fields, content)

    async def load_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> types.Part | None:
        """Return a version of an artifact, by default the newest, or None.

        A reference to another artifact of the same user is followed.

        Raises:
            InputValidationError: The ids are not valid, or a reference cannot be followed.
            IntegrityError: Stored data is damaged.
            StateStoreError: The store failed.

        """
        ids = (app_name, user_id, filename, session_id)
        for left in range(MAX_REFERENCES, -1, -1):
            file = self._file(*ids)
            found = await file.find(version)
            if found is None:
                return None
            part = join_part(file, found, await file.read(found))
            if not artifact_util.is_artifact_ref(part) or part.file_data is None:
                return None if part in (types.Part(), REWOUND) else part
            target = artifact_util.resolve_artifact_reference(
                file_uri=part.file_data.file_uri or "",
                app_name=ids[0],
                user_id=ids[1],
                session_id=ids[3],
                remaining_depth=left,
            )
            ids = (target.app_name, target.user_id, target.filename, target.session_id)
            version = target.version
        return None  # not reached: the last reference raises

    async def list_artifact_keys(
        self, *, app_name: str, user_id: str, session_id: str | None = None
    ) -> list[str]:
        """Return the names of a session's artifacts and of those that a user's sessions share.

        Raises:
            InputValidationError: The ids are not valid.
            StateStoreError: The store failed.

        """
        validate_ids(app_name, user_id, session_id)
        names = await list_file_names(self.state_store, scope_prefix(app_name, user_id, None))
        if session_id is not None:
            own = scope_prefix(app_name, user_id, session_id)
            names += await list_file_names(self.state_store, own)
        return sorted(names)

    async def delete_artifact(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> None:
        """Delete all versions of an artifact, if it exists.

        Raises:
            InputValidationError: The ids are not valid.
            StateStoreError: The store failed.

        """
        await self._file(app_name, user_id, filename, session_id).delete()

    async def list_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[int]:
        """Return the numbers of all versions of an artifact, without reading them.

        Raises:
            InputValidationError: The ids are not valid.
            StateStoreError: The store failed.

        """
        return await self._file(app_name, user_id, filename, session_id).list_numbers()

    async def list_artifact_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[ArtifactVersion]:
        """Return all versions of an artifact with their metadata.

        Raises:
            InputValidationError: The ids are not valid.
            IntegrityError: Stored data is damaged.
            StateStoreError: The store failed.

        """
        file = self._file(app_name, user_id, filename, session_id)
        ids = (app_name, user_id, filename, session_id)
        return [describe_version(file, each, *ids) for each in await file.find_all()]

    async def get_artifact_version(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> ArtifactVersion | None:
        """Return the metadata of a version of an artifact, by default the newest, or None.

        Raises:
            InputValidationError: The ids are not valid.
            IntegrityError: Stored data is damaged.
            StateStoreError: The store failed.

        """
        file = self._file(app_name, user_id, filename, session_id)
        found = await file.find(version)
        if found is None:
            return None
        return describe_version(file, found, app_name, user_id, filename, session_id)

    def _file(
        self, app_name: str, user_id: str, filename: str, session_id: str | None
    ) -> VersionedFile:
        """Return the file of an artifact.

        Raises:
            InputValidationError: The ids are not valid.

        """
        is_shared = filename.startswith(USER_PREFIX)
        validate_ids(app_name, user_id, None if is_shared else session_id)
        if not is_shared and session_id is None:
            raise InputValidationError(
                f"artifact {filename!r} belongs to a session; pass session_id, or start its name "
                f"with {USER_PREFIX!r}"
            )
        try:
            scope = scope_prefix(app_name, user_id, None if is_shared else session_id)
            return VersionedFile(self.state_store, scope, filename)
        except UnicodeEncodeError as error:
            raise InputValidationError(
                f"artifact {filename!r} or its ids have a lone surrogate; use valid Unicode"
            ) from error

    def __repr__(self) -> str:
        return f"<HoldfastArtifactService on {self.state_store!r}>"


def validate_ids(app_name: str, user_id: str, session_id: str | None) -> None:
    """Check the ids as ADK's own services do.

    Raises:
        InputValidationError: An id is empty or would leave its folder in other services.

    """
    artifact_util.validate_path_segment(app_name, "app_name")
    artifact_util.validate_path_segment(user_id, "user_id")
    if session_id is not None:
        artifact_util.validate_path_segment(session_id, "session_id")


def find_mime_type(
    part: types.Part, app_name: str, user_id: str, session_id: str | None
) -> str | None:
    """Return the media type of an artifact; None for a reference to another one.

    Raises:
        InputValidationError: The part has no content, or refers to another user or session.

    """
    if part.inline_data is not None:
        return part.inline_data.mime_type
    if part.text is not None:
        return "text/plain"
    if part.file_data is None:
        raise InputValidationError(
            "artifact has no content; save a part with inline_data, text or file_data"
        )
    if not artifact_util.is_artifact_ref(part):
        return part.file_data.mime_type
    target = artifact_util.parse_artifact_uri(part.file_data.file_uri or "")
    if target is None:
        raise InputValidationError(f"invalid artifact reference {part.file_data.file_uri!r}")
    artifact_util.validate_artifact_reference_scope(
        app_name=app_name, user_id=user_id, session_id=session_id, parsed_uri=target
    )
    return None


def split_part(part: types.Part) -> tuple[dict[str, Any], bytes]:
    """Return a part in JSON without its bytes or text, and these as bytes."""
    skeleton: dict[str, Any] = part.model_dump(mode="json", by_alias=True, exclude_none=True)
    if part.inline_data is not None and part.inline_data.data is not None:
        skeleton["inlineData"]["data"] = ""
        return skeleton, part.inline_data.data
    if part.text is not None:
        skeleton["text"] = ""
        return skeleton, part.text.encode("utf-8", "surrogatepass")
    return skeleton, b""


def join_part(file: VersionedFile, version: FileVersion, content: bytes) -> types.Part:
    """Return the part of a version.

    Raises:
        IntegrityError: The record is damaged.

    """
    try:
        part = types.Part.model_validate(version.fields.get("part"))
        if part.inline_data is not None and part.inline_data.data is not None:
            part.inline_data.data = content
        elif part.text is not None:
            part.text = content.decode("utf-8", "surrogatepass")
    except (ValidationError, UnicodeDecodeError) as error:
        raise damaged_version_error(file, version) from error
    return part


def describe_version(
    file: VersionedFile,
    version: FileVersion,
    app_name: str,
    user_id: str,
    filename: str,
    session_id: str | None,
) -> ArtifactVersion:
    """Return the metadata of a version.

    Raises:
        IntegrityError: The record is damaged.

    """
    owner = f"apps/{app_name}/users/{user_id}"
    if not filename.startswith(USER_PREFIX):
        owner = f"{owner}/sessions/{session_id}"
    fields = version.fields
    try:
        return ArtifactVersion(
            version=version.number,
            canonical_uri=f"holdfast://{owner}/artifacts/{filename}/versions/{version.number}",
            custom_metadata=fields.get("custom_metadata", {}),
            create_time=fields.get("create_time", 0.0),
            mime_type=fields.get("mime_type"),
        )
    except ValidationError as error:
        raise damaged_version_error(file, version) from error


def damaged_version_error(file: VersionedFile, version: FileVersion) -> IntegrityError:
    """Return the error for a record that this version of ADK cannot read."""
    return IntegrityError(
        f"version {version.number} of artifact {file.name!r} is not a part of ADK; restore it from "
        "a backup, or save the artifact again"
    )


def encode_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return metadata as JSON.

    Raises:
        UnsupportedValueError: It cannot be expressed in JSON.

    """
    try:
        found: dict[str, Any] = to_jsonable_python(metadata)
    except (PydanticSerializationError, ValueError, TypeError) as error:
        raise UnsupportedValueError(
            f"custom_metadata cannot be stored: {error}; use values that JSON can express"
        ) from error
    return found
