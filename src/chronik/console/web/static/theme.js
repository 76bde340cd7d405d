// Runs before anything is drawn, so that a chosen theme never flashes in the other one's colours.
(function () {
  try {
    const chosen = localStorage.getItem("chronik-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // A browser that keeps nothing has the system's theme.
  }
})();
