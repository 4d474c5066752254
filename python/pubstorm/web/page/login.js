"use strict";
(() => {
  const byId = (id) => document.getElementById(id);

  async function open(token) {
    byId("answer").textContent = "";
    try {
      const response = await fetch("/login", {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ token }),
      });
      if (response.ok) location.replace("/");
      else byId("answer").textContent = await response.text();
    } catch {
      byId("answer").textContent = "no connection to the page's server";
    }
  }

  byId("form").addEventListener("submit", (event) => {
    event.preventDefault();
    open(byId("token").value.trim());
  });
  /* A printed address has the token behind #: browsers do not send this part. */
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) open(given);
})();
