// Runs before the first paint, so that the chosen theme does not flash in other colours.
(function () {
  try {
    const chosen = localStorage.getItem("chronik-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // Without local storage, the system's theme applies.
  }
})();
