"""REST API and viewer: ``holdfast serve``, or an ASGI app to mount in your own."""

from holdfast.extras import require_extra

with require_extra("server"):
    from holdfast.server.app import create_app
    from holdfast.server.auth import Token, read_tokens
    from holdfast.server.limits import Limits

__all__ = ["Limits", "Token", "create_app", "read_tokens"]
