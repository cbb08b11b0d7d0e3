// Updates the marked parts of a page while it is visible, until the operator pauses it. The page works without this script.
(() => {
  const button = document.getElementById("live");
  const status = document.getElementById("live-status");
  const pausedKey = "usher-updates-paused";
  const focusable = "a[href], button, input, select, textarea, [tabindex]";
  const milliseconds = Number(button.dataset.seconds) * 1000;
  let isPaused = sessionStorage.getItem(pausedKey) === "yes";
  let isBusy = false;
  let readAt = Date.now();

  const liveParts = (page) => [...page.querySelectorAll("[data-live]")];
  const isSelected = (part) => {
    const selection = getSelection();
    return !selection.isCollapsed && selection.containsNode(part, true);
  };

  // The element that has the focus keeps it, also if it is replaced: the one with the same link, else at the same place.
  const replaceContent = (part, fresh) => {
    if (part.innerHTML === fresh.innerHTML || isSelected(part)) return;
    const focused = part.contains(document.activeElement) ? document.activeElement : null;
    const place = [...part.querySelectorAll(focusable)].indexOf(focused);
    const scrolled = [...part.querySelectorAll(".scroll, .output")].map((box) => [
      box.scrollLeft, box.scrollTop, box.scrollHeight - box.scrollTop - box.clientHeight < 4,
    ]);
    part.replaceChildren(...fresh.childNodes);
    [...part.querySelectorAll(".scroll, .output")].forEach((box, number) => {
      const [left, top, isAtEnd] = scrolled[number] || [0, 0, true];
      box.scrollTo(left, isAtEnd && box.matches(".output") ? box.scrollHeight : top);
    });
    if (!focused) return;
    const next = [...part.querySelectorAll(focusable)];
    const href = focused.getAttribute("href");
    const same = next.find((each) => href && each.getAttribute("href") === href) || next[place];
    if (same) same.focus({preventScroll: true});
  };

  const update = async () => {
    if (isPaused || isBusy || document.hidden) return;
    isBusy = true;
    try {
      const answer = await fetch(location.href, {headers: {Accept: "text/html"}, redirect: "manual"});
      if (answer.type === "opaqueredirect") return location.reload(); // to sign in
      if (!answer.ok) throw new Error(answer.statusText);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = new Map(liveParts(page).map((part) => [part.dataset.live, part]));
      liveParts(document).forEach((part) => {
        if (fresh.has(part.dataset.live)) replaceContent(part, fresh.get(part.dataset.live));
      });
      readAt = Date.now();
      status.textContent = "";
      if (!page.getElementById("live")) finish();
    } catch {
      status.textContent = `MGMT does not answer. This page is of ${new Date(readAt).toLocaleTimeString()}.`;
    } finally {
      isBusy = false;
    }
  };

  const showState = () => {
    button.textContent = isPaused ? "Resume updates" : "Pause updates";
    status.textContent = isPaused ? "This page stays as it is." : "";
  };
  const timer = setInterval(update, milliseconds);
  const finish = () => {
    clearInterval(timer);
    button.hidden = true;
  };

  button.addEventListener("click", () => {
    isPaused = !isPaused;
    sessionStorage.setItem(pausedKey, isPaused ? "yes" : "no");
    showState();
    update();
  });
  document.addEventListener("visibilitychange", () => {
    if (Date.now() - readAt >= milliseconds) update();
  });
  showState();
  button.hidden = false;
})();
