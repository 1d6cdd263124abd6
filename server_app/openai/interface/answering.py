"""From texts to the reply of their request."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from edge_sdk.errors import CosdError, InvalidRequest
from server_app.openai.interface.event_stream import EventStream
from server_app.openai.interface.problems import CLIENT_GONE
from server_app.openai.interface.replies import Replies
from server_app.openai.interface.text_request import TextRequest
from server_app.openai.interface.texts import ClientGone, Texts


async def answered(
    request: Request,
    asked: TextRequest,
    texts: Texts,
    replies: Replies,
    *,
    failed: Callable[[CosdError], None] = lambda error: None,
) -> Response:
    """Begin the texts and answer with them, whole or as events.

    Args:
        texts: not begun; closed at the end of the reply.
        failed: told an error that is sent as an event.

    Raises:
        CosdError: a text cannot begin, or a whole one cannot go on.
    """
    handed_over = False
    try:
        await texts.begin(request)
        if asked.stream:
            stream = EventStream(texts, replies, usage_at_end=asked.usage_at_end, failed=failed)
            handed_over = True
            return stream
        answers = await texts.whole(request)
        return JSONResponse(replies.whole(answers, texts.usage))
    except ClientGone:
        return Response(status_code=CLIENT_GONE)
    except InvalidRequest as error:
        # Behind this route a prompt is called otherwise.
        if error.field is not None and error.field.startswith(("prompt", "messages")):
            error.field = asked.prompt_field
        raise
    finally:
        if not handed_over:
            await texts.aclose()
