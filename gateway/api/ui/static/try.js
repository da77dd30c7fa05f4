// Try it with JavaScript: the answer comes as the model says it. Whatever comes is put into the page as text.
"use strict";

(() => {
  const form = document.getElementById("try-form");
  if (!form || !window.ReadableStream) return;
  const log = document.getElementById("try-log");
  const talk = document.getElementById("try-talk");
  const bill = document.getElementById("try-bill");
  const status = document.getElementById("try-status");
  const send = document.getElementById("try-send");
  const stop = document.getElementById("try-stop");
  let running = null;

  const made = (tag, text, className) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (className) element.className = className;
    return element;
  };

  const says = (who, text, className) => {
    const entry = made("li", undefined, className);
    const said = made("div", text, "said");
    said.dir = "auto";
    entry.append(made("div", who, "who"), said);
    talk.append(entry);
    log.hidden = false;
    return said;
  };

  const showBill = rows => {
    const list = made("dl", undefined, "facts");
    for (const row of rows) {
      const value = made("dd");
      if (row.href) {
        const link = made("a", row.text, "id");
        link.href = row.href;
        value.append(link);
      } else {
        value.textContent = row.text;
      }
      list.append(made("dt", row.label), value);
    }
    bill.replaceChildren(list);
  };

  // The events of a stream: lines that begin with "data:", an empty line after each.
  async function* events(body) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) {
        if (part.startsWith("data: {")) yield JSON.parse(part.slice(6));
      }
    }
  }

  const failed = async answer => {
    try {
      return { ...(await answer.json()).error, status: answer.status };
    } catch {
      return { message: `The gateway answered with status ${answer.status}.`, status: answer.status };
    }
  };

  // What went wrong, with its status, its code and the request under which the log has more.
  const showFault = (fault, request) => {
    const said = says(["Error", fault.status].filter(Boolean).join(" "), fault.message || "The answer failed.", "failed");
    if (fault.code) said.previousSibling.append(", ", made("code", String(fault.code)));
    if (!request) return;
    const line = made("p", "Request ");
    const link = made("a", request, "id");
    link.href = `${form.dataset.requests}${request}`;
    line.append(link);
    said.after(line);
  };

  async function ask() {
    const body = new FormData(form);
    const headers = { accept: "text/event-stream" };
    const key = (body.get("key") || "").trim();
    body.delete("key");
    if (key) headers.authorization = `Bearer ${key}`;
    running = new AbortController();
    send.disabled = true;
    stop.hidden = false;
    status.textContent = "Waiting for the answer …";
    const files = body.getAll("files").map(file => file.name).filter(Boolean);
    says("You", body.get("message") + (files.length ? `\n[${files.join(", ")}]` : ""), "by-user");
    const said = says(body.get("model"), "", "by-model");
    log.setAttribute("aria-busy", "true");
    let request = null;
    try {
      const answer = await fetch(form.action, { method: "POST", body, headers, signal: running.signal });
      request = answer.headers.get("x-request-id");
      if (!answer.ok) throw await failed(answer);
      let complete = false;
      for await (const told of events(answer.body)) {
        if (told.error) throw told.error;
        if (told.delta) said.append(told.delta);
        if (told.bill) {
          showBill(told.bill);
          complete = true;
        }
        said.after(...(told.calls || []).map(call => made("pre", call, "call said")));
        if (told.conversation) goOn(told.conversation);
      }
      if (!complete) throw { message: "The answer broke off." };
      status.textContent = "The answer is complete.";
      form.elements.message.value = "";
      form.elements.files.value = "";
    } catch (error) {
      const stopped = error.name === "AbortError";
      status.textContent = stopped ? "Stopped." : "";
      if (stopped && request) {
        showBill([{ label: "Request", text: request, href: `${form.dataset.requests}${request}` }]);
      }
      if (!stopped) showFault(error, request);
    } finally {
      running = null;
      send.disabled = false;
      stop.hidden = true;
      log.removeAttribute("aria-busy");
      form.elements.message.focus();
    }
  }

  const goOn = conversation => {
    form.elements.conversation.value = conversation;
    history.replaceState(null, "", `${form.getAttribute("action")}?conversation=${encodeURIComponent(conversation)}`);
  };

  form.addEventListener("submit", event => {
    event.preventDefault();
    if (!running) ask();
  });
  stop.addEventListener("click", () => running && running.abort());
  form.elements.message.addEventListener("keydown", event => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
})();
