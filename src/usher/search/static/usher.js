// "/" focuses the search field. The page needs no script for anything else.
document.addEventListener("keydown", (event) => {
  const field = document.getElementById("q");
  const typing = event.target.closest("input, textarea, select, [contenteditable]");
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || typing || !field) return;
  event.preventDefault();
  field.focus();
  field.select();
});
