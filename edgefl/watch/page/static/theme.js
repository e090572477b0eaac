// Light or dark: what the system says, unless this browser was told otherwise. Runs before the page is painted.
"use strict";
(() => {
  const kept = (() => {
    try { return localStorage.getItem("edgefl-theme"); } catch { return null; }
  })();
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
})();
