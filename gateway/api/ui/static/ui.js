// What is live is asked for again only while it is looked at, and while its box is ticked.
document.addEventListener("htmx:beforeRequest", (event) => {
  if (!event.detail.elt.hasAttribute("data-live")) return;
  const box = document.querySelector("[data-live-switch]");
  if (document.hidden || (box && !box.checked)) event.preventDefault();
});
// Without a script nothing is live: then the box is not there.
for (const label of document.querySelectorAll("[data-needs-script]")) label.hidden = false;
// A menu closes with Escape, and when something else is chosen.
for (const menu of document.querySelectorAll("details.account")) {
  document.addEventListener("click", (event) => { if (!menu.contains(event.target)) menu.open = false; });
  menu.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { menu.open = false; menu.querySelector("summary").focus(); }
  });
}
