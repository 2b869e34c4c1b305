"""A model for the OpenAI Agents SDK with scripted answers, which keeps its inputs."""

from __future__ import annotations

from agents import Model, ModelResponse, Usage
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)


class ScriptedModel(Model):
    """Returns its answers in order: a text, or the name and arguments of a tool."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    async def get_response(self, system_instructions, input, *rest, **more):  # noqa: A002
        self.asked.append(list(input))
        answer = self.answers.pop(0)
        return ModelResponse(
            output=[make_text_message(answer) if isinstance(answer, str) else call(*answer)],
            usage=Usage(),
            response_id=None,
        )

    def stream_response(self, *rest, **more):
        raise NotImplementedError("nothing here streams")


def make_text_message(words):
    part = ResponseOutputText(type="output_text", text=words, annotations=[])
    return ResponseOutputMessage(
        id="msg_1", type="message", role="assistant", status="completed", content=[part]
    )


def call(tool, call_id, arguments):
    return ResponseFunctionToolCall(
        type="function_call", name=tool, call_id=call_id, arguments=arguments
    )
