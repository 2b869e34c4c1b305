// Server-sent events, read with `fetch`: `EventSource` cannot send a token.

/** Call a function with each event of a response, as `{name, data}`, until it ends. Comments are skipped. */
export async function readEvents(response, onEvent) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const frames = (text + value).split("\n\n");
    text = frames.pop();
    for (const frame of frames) {
      const event = parseFrame(frame);
      if (event) onEvent(event);
    }
  }
}

/** Return an event of its lines, or null if it has no data. */
function parseFrame(frame) {
  const fields = new Map(frame.split("\n").map((line) => {
    const at = line.indexOf(":");
    return [line.slice(0, at), line.slice(at + 1).trimStart()];
  }));
  return fields.has("data") ? { name: fields.get("event"), data: JSON.parse(fields.get("data")) } : null;
}
