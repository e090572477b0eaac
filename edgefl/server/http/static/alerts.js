// Alerts of the server, where it has them: a list, or null.

const ABSENT = 600000; // milliseconds after which a server that has none is asked again
let askAgain = 0;

export async function askAlerts() {
  if (Date.now() < askAgain) return null;
  const answer = await fetch("/api/v1/alerts").catch(() => null);
  if (answer?.status === 404) askAgain = Date.now() + ABSENT;
  return answer?.ok ? answer.json() : null;
}
