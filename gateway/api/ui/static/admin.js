"use strict";

// A new secret is copied by a click, or marked whole for whoever copies it by hand.
(() => {
  const [secret, copy, status] = ["secret", "copy", "copy-status"].map(name => document.getElementById(name));
  if (!secret) return;
  secret.addEventListener("focus", () => secret.select());
  secret.focus();
  secret.select();
  if (!navigator.clipboard) return;
  copy.hidden = false;
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(secret.value);
      status.textContent = "Copied.";
    } catch {
      secret.focus();
      status.textContent = "The browser did not allow it. Copy the marked text.";
    }
  });
})();

// Uploads with their progress. Without it the form is sent as it is.

(() => {
  const form = document.getElementById("upload");
  if (!form) return;
  const [progress, status, stop] = ["progress", "status", "stop"].map(name => document.getElementById(`upload-${name}`));
  const send = form.querySelector("button.primary");

  const ended = text => {
    status.textContent = text;
    progress.hidden = stop.hidden = true;
    send.disabled = false;
  };

  form.addEventListener("submit", event => {
    event.preventDefault();
    const request = new XMLHttpRequest();
    request.open("POST", form.action);
    request.setRequestHeader("accept", "application/json");
    request.setRequestHeader("x-csrf-token", form.elements.csrf.value);
    request.responseType = "json";
    request.upload.addEventListener("progress", ({ loaded, total }) => {
      progress.value = loaded / total;
      status.textContent = `${Math.floor(100 * loaded / total)} %`;
    });
    request.addEventListener("load", () => {
      const told = request.response;
      if (request.status === 200 && told && told.location) location.assign(told.location);
      else ended(told && told.error ? told.error.message : `The gateway answered with status ${request.status}.`);
    });
    request.addEventListener("error", () => ended("The upload broke off."));
    request.addEventListener("abort", () => ended("Stopped."));
    progress.value = 0;
    progress.hidden = stop.hidden = false;
    send.disabled = true;
    status.textContent = "";
    stop.onclick = () => request.abort();
    request.send(new FormData(form));
  });
})();
