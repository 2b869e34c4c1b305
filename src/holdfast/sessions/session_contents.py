"""What a session stores besides its current state: events, documents, attachments."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping

from holdfast.documents.blobs import EMBED, Attachments
from holdfast.documents.document import Document
from holdfast.documents.export import export_document
from holdfast.log.event import Event
from holdfast.log.event_log import Position
from holdfast.sessions.attachments import (
    AttachmentContent,
    offer_attachment,
    read_attachment,
    stream_attachment,
)
from holdfast.sessions.base import BaseSession
from holdfast.sessions.event_view import follow_loaded
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.follow import LogFollower, validate_after
from holdfast.snapshots.records import SnapshotInfo, validate_tags
from holdfast.snapshots.verify import Verification
from holdfast.values.references import Attachment


class SessionContents(BaseSession):
    """The part of a `Session` that reads what is stored, and attaches files."""

    archive: SnapshotArchive
    """The durable snapshots of all sessions in the store."""

    async def last_finished(self) -> SnapshotInfo | None:
        """Return the newest durable snapshot in which every tool call has a result, or None."""
        return await self.archive.find_newest_info(
            location=self.location, wanted=lambda info: not info.unfinished
        )

    def follow(self, after: int | None = None) -> AsyncGenerator[Event, None]:
        """Yield committed events as they are committed, by this session and in other processes.

        Every event is yielded once, in order. Without ``after``, the first one follows the last
        commit that this session has read; with the number of an event, it follows that event; with
        0 it is the first one in the log. To continue later, in any process, pass the ``seq`` of the
        last event that you received. A session that was not committed yet is waited for.

        The session in memory does not change: call `refresh` to apply what others committed. It may
        be used by other tasks in the meantime. To stop, leave the loop or cancel the task;
        ``contextlib.aclosing`` releases its resources at once.

        Raises:
            NotFoundError: The log does not have the event ``after``, or the events after it were
                pruned. Or the session was deleted, or deleted and created again.
            IntegrityError: The log is damaged.
            StateStoreError: The store failed.
            TypeError: ``after`` is not an int.
            ValueError: ``after`` is negative.

        """
        start: int | Position | None = validate_after(after)
        incarnation = self.committer.incarnation
        if not incarnation.is_created:
            follower = LogFollower(self.state_store, self.location, start or 0)
        else:
            start = self._working.head if start is None else start
            follower = LogFollower(self.state_store, self.location, start, incarnation.id)
        return follow_loaded(follower, self.committer.timeline.contents)

    async def export(
        self,
        *,
        at: str | int | None = None,
        tags: Mapping[str, str] | None = None,
        attachments: Attachments = EMBED,
    ) -> Document:
        """Return the committed state and its events as a document.

        ``at`` selects a durable snapshot by its id, or an event by its number. ``attachments`` is
        where large values and attachments go: ``"embed"`` reads them into the document,
        ``"folder"`` reads them from the store on demand, for `SnapshotManager.to_file`, and
        ``"omit"`` leaves them out.

        Raises:
            NotFoundError: The session has no such snapshot or event, or it was pruned.
            IntegrityError: The stored log or a keyframe is damaged.
            DocumentTooLargeError: The attachments are too large to be embedded.
            StateStoreError: The store failed.

        """
        wanted = validate_tags(tags)
        return await export_document(
            self.archive,
            self.location,
            snapshot_id=None if isinstance(at, int) else at,
            seq=at if isinstance(at, int) else None,
            tags=wanted,
            attachments=attachments,
        )

    async def verify(self) -> Verification:
        """Check everything that is stored: hash chain, digests, keyframes and snapshots.

        Raises:
            StateStoreError: The store failed.

        """
        return await self.archive.verify(location=self.location)

    async def attach(
        self,
        content: AttachmentContent,
        *,
        media_type: str | None = None,
        name: str | None = None,
    ) -> Attachment:
        """Attach bytes, a file or an iterator of bytes, and return a value that refers to it.

        Put the attachment into a message, an event or the state: the commit stores its content
        once, however often it is referred to. The content of a file is copied now, to a temporary
        file. The media type is guessed from the name, and the name is that of the file, by default.

        Raises:
            HoldfastError: The file cannot be read.

        """
        return await offer_attachment(self.committer.blobs, content, media_type, name)

    async def read_attachment(self, attachment: Attachment) -> bytes:
        """Return the content of an attachment.

        Raises:
            NotFoundError: The content is not stored in this session.
            IntegrityError: The content is damaged.
            StateStoreError: The store failed.

        """
        return await read_attachment(self.committer.blobs, attachment)

    def stream_attachment(self, attachment: Attachment) -> AsyncIterator[bytes]:
        """Yield the content of an attachment in chunks of 512 KiB.

        The last chunk is yielded only if all of them match the digest.

        Raises:
            NotFoundError: The content is not stored in this session.
            IntegrityError: The content is damaged.
            StateStoreError: The store failed.

        """
        return stream_attachment(self.committer.blobs, attachment)
