// Requests state.json once a second while the page is visible, and draws it. All text is inserted
// as text, never as markup: clients choose the names of tenants.
"use strict";

const PERIOD_MS = 1000;
const TIMEOUT_MS = 5000;
/** Number of samples that are kept and drawn: two minutes, as many as the server keeps. */
const SAMPLES_MAX = 120;
/** Number of samples over which a tenant's hit ratio is computed. */
const HITS_OVER = 10;

/** The levels of memory pressure, by the server's names. */
const LEVELS = ["calm", "low", "medium", "critical"];

const SVG = "http://www.w3.org/2000/svg";
const byId = (id) => document.getElementById(id);

/** The samples since the server's last start, oldest first. */
let samples = [];
/** The table row of each tenant, and its history, by name. */
const rows = new Map();

// === Formats ===

const count = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (n >= 1024 && unit + 1 < units.length) {
    n /= 1024;
    unit += 1;
  }
  return `${n.toFixed(unit === 0 || n >= 100 ? 0 : 1)} ${units[unit]}`;
}

const percent = (part, all) => (all > 0 ? `${((100 * part) / all).toFixed(1)} %` : "–");

// === Figures ===

/** The growth of a counter between two samples, per second. */
function rate(now, before, counter) {
  const seconds = (now.uptime_ms - before.uptime_ms) / 1000;
  return seconds > 0 ? Math.max(0, counter(now) - counter(before)) / seconds : 0;
}

/** A counter's rates between consecutive samples. */
const rates = (counter) => samples.slice(1).map((sample, n) => rate(sample, samples[n], counter));

const sum = (list, figure) => list.reduce((total, entry) => total + figure(entry), 0);
const steps = (sample) => sum(sample.reclaimers, (node) => node.steps);

/** Hit ratios in per cent, from the first interval with gets on; an interval without gets repeats the previous ratio. */
function ratios() {
  const known = [];
  samples.slice(1).forEach((sample, n) => {
    const hits = sample.hits - samples[n].hits;
    const gets = hits + sample.misses - samples[n].misses;
    if (gets > 0) known.push((100 * hits) / gets);
    else if (known.length > 0) known.push(known.at(-1));
  });
  return known;
}

/** The limit on charged bytes: below the budget while the machine is short of memory. */
const ceilingOf = (sample) => sample.pressure?.ceiling ?? sample.budget;

// === Plots ===

/** The points of a line over the last samples, the newest at the right edge; `top` is the value of the upper edge. */
function points(values, top) {
  const first = SAMPLES_MAX - values.length;
  return values.map((value, n) => `${first + n},${(100 - (100 * value) / top).toFixed(2)}`);
}

function draw(place, lines, top, description) {
  let svg = place.querySelector("svg");
  if (!svg) {
    svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", `0 -2 ${SAMPLES_MAX - 1} 104`);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("role", "img");
    place.append(svg);
    svg.append(document.createElementNS(SVG, "polygon"));
    for (const name of lines.map((_, n) => "ab"[n])) {
      const line = document.createElementNS(SVG, "polyline");
      line.setAttribute("class", name);
      svg.append(line);
    }
  }
  svg.setAttribute("aria-label", description);
  svg.querySelectorAll("polyline").forEach((line, n) => line.setAttribute("points", points(lines[n], top).join(" ")));
  const area = points(lines[0], top);
  const left = SAMPLES_MAX - lines[0].length;
  svg.querySelector("polygon").setAttribute("points", [`${left},100`, ...area, `${SAMPLES_MAX - 1},100`].join(" "));
}

/** As `draw`, with `edge` as the label of the upper edge. */
function plot(id, lines, top, edge, description) {
  const place = byId(id);
  draw(place, lines, top, description);
  let label = place.querySelector("span");
  if (!label) {
    label = document.createElement("span");
    place.append(label);
  }
  label.textContent = edge;
}

/** A round number that is at least the largest of these values. */
function ceiling(...lines) {
  const most = Math.max(1, ...lines.flat());
  const step = 10 ** Math.floor(Math.log10(most));
  return Math.ceil(most / step) * step;
}

// === Sections ===

function setText(id, text) {
  byId(id).textContent = text;
}

function showMemory(now) {
  setText("used", bytes(now.used));
  setText("budget", bytes(ceilingOf(now)));
  setText("items", count.format(now.items));
  const used = samples.map((sample) => sample.used);
  const limit = samples.map(ceilingOf);
  const top = Math.max(now.budget, ...used, ...limit);
  plot("memory-plot", [used, limit], top, bytes(top), `charged ${bytes(now.used)} of ${bytes(ceilingOf(now))}, over two minutes`);
}

function showPressure(now) {
  const full = (sample) => Math.min(100, (100 * sample.used) / Math.max(1, ceilingOf(sample)));
  const level = (sample) => (100 * LEVELS.indexOf(sample.pressure?.level ?? LEVELS[0])) / (LEVELS.length - 1);
  const heard = now.pressure ? now.pressure.level : "not monitored";
  setText("full", `${full(now).toFixed(0)} %`);
  setText("level", heard);
  setText("lowered", now.pressure ? `; the budget of ${bytes(now.budget)} was lowered ${count.format(now.pressure.lowered)} times` : " (--pressure)");
  plot("pressure-plot", [samples.map(full), samples.map(level)], 100, "100 %",
    `${full(now).toFixed(0)} per cent of the limit in use, a full cache is usual; the machine's pressure: ${heard}; over two minutes`);
}

function showHits(now, before) {
  const lately = ratios();
  const latest = lately.at(-1);
  const gets = rate(now, before, (sample) => sample.hits + sample.misses);
  setText("ratio", latest === undefined ? "–" : `${latest.toFixed(1)} %`);
  setText("ratio-all", percent(now.hits, now.hits + now.misses));
  setText("gets", count.format(gets));
  setText("sets", count.format(rate(now, before, (sample) => sample.sets)));
  plot("hits-plot", [lately], 100, "100 %", `hit ratio ${latest?.toFixed(1) ?? "unknown"} per cent, over two minutes`);
}

function showReclaim(now, before) {
  const foreground = rates((sample) => sample.freed_in_foreground);
  const background = rates((sample) => sample.freed_in_background);
  const latest = [foreground, background].map((line) => count.format(line.at(-1) ?? 0));
  setText("evicted", count.format(rate(now, before, (sample) => sample.evictions)));
  setText("foreground", latest[0]);
  setText("background", latest[1]);
  setText("steps", count.format(rate(now, before, steps)));
  setText("refused", count.format(now.refused));
  const top = ceiling(foreground, background);
  plot("reclaim-plot", [foreground, background], top, `${count.format(top)}/s`,
    `values evicted a second: ${latest[0]} by stores, ${latest[1]} in the background; over two minutes`);
}

function makeRow() {
  const row = document.createElement("tr");
  const head = document.createElement("th");
  head.scope = "row";
  const name = document.createElement("div");
  const limits = document.createElement("div");
  limits.className = "limits";
  const trend = document.createElement("div");
  trend.className = "trend";
  const share = document.createElement("meter");
  head.append(name, limits, trend, share);
  const cells = ["", "", "", "least"].map((kind) => {
    const cell = document.createElement("td");
    cell.className = kind;
    return cell;
  });
  const gets = document.createElement("div");
  gets.className = "limits";
  row.append(head, ...cells);
  return { row, name, limits, trend, share, cells, gets, history: [], hits: [] };
}

function limitsOf(tenant) {
  const given = ["min", "low", "high", "max"].filter((limit) => tenant[limit]);
  return given.map((limit) => `${limit} ${bytes(tenant[limit])}`).join(", ");
}

function showTenant(shown, tenant, budget, before, seconds) {
  shown.history = [...shown.history, tenant.bytes].slice(-SAMPLES_MAX);
  if (shown.hits.at(-1)?.all !== tenant.hits + tenant.misses) {
    shown.hits = [...shown.hits, { hits: tenant.hits, all: tenant.hits + tenant.misses }].slice(-HITS_OVER - 1);
  }
  const first = shown.hits.length > 1 ? shown.hits[0] : { hits: 0, all: 0 };
  shown.name.textContent = tenant.name;
  // A name that is too long for its column is cut.
  shown.name.title = tenant.name;
  shown.limits.textContent = limitsOf(tenant);
  draw(shown.trend, [shown.history], Math.max(1, ...shown.history), `${tenant.name}: ${bytes(tenant.bytes)}, over two minutes`);
  shown.share.max = Math.max(1, budget);
  shown.share.value = tenant.bytes;
  shown.share.setAttribute("aria-label", `share of the budget: ${percent(tenant.bytes, budget)}`);
  const evicted = before ? tenant.evictions - before.evictions : 0;
  const words = [
    bytes(tenant.bytes),
    count.format(tenant.items),
    percent(tenant.hits - first.hits, tenant.hits + tenant.misses - first.all),
    count.format(tenant.evictions) + (evicted > 0 ? ` +${count.format(evicted)}` : ""),
  ];
  shown.cells.forEach((cell, n) => (cell.textContent = words[n]));
  const hits = before && seconds > 0 ? Math.max(0, tenant.hits - before.hits) / seconds : 0;
  shown.gets.textContent = `${count.format(hits)}/s`;
  shown.cells[2].append(shown.gets);
}

function showTenants(now, before) {
  setText("tenant-count", count.format(now.tenant_count));
  const all = [...now.tenants];
  if (now.others.tenants > 0) {
    // No tenant can have this name: tenants' names have no spaces.
    all.push({ ...now.others, name: `${count.format(now.others.tenants)} others` });
  }
  // Samples of the server's history have no tenants.
  const earlier = new Map((before.tenants ?? []).map((tenant) => [tenant.name, tenant]));
  const key = (tenant) => ("tenants" in tenant ? "the others" : tenant.name);
  const wanted = new Set(all.map(key));
  for (const [name, shown] of rows) {
    if (!wanted.has(name)) {
      shown.row.remove();
      rows.delete(name);
    }
  }
  for (const tenant of all) {
    if (!rows.has(key(tenant))) rows.set(key(tenant), makeRow());
    const shown = rows.get(key(tenant));
    showTenant(shown, tenant, now.budget, earlier.get(tenant.name), (now.uptime_ms - before.uptime_ms) / 1000);
    byId("tenants").append(shown.row);
  }
}

function show(now) {
  const before = samples.at(-1);
  // The server was restarted: earlier counts belong to the previous process.
  if (before && now.uptime_ms < before.uptime_ms) {
    samples = [];
    rows.clear();
    byId("tenants").replaceChildren();
  }
  samples = [...samples, now].slice(-SAMPLES_MAX);
  const last = samples.at(-2) ?? now;
  showMemory(now);
  showPressure(now);
  showHits(now, last);
  showReclaim(now, last);
  showTenants(now, last);
  const minutes = Math.floor(now.uptime_ms / 60000);
  setText("status", `version ${now.version}, up ${minutes >= 1 ? `${count.format(minutes)} min` : "less than a minute"}, connections: ${count.format(now.connections)}`);
  byId("status").className = "";
}

/** Fetches the samples that the server has kept, so that the plots begin with them. */
async function recall() {
  try {
    const answer = await fetch("history.json", { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) });
    if (answer.ok) samples = await answer.json();
  } catch {
    // The plots begin now.
  }
}

async function ask() {
  if (document.hidden) return;
  try {
    const answer = await fetch("state.json", { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) });
    if (!answer.ok) throw new Error(`${answer.status}`);
    show(await answer.json());
  } catch {
    setText("status", "no answer: the figures are old");
    byId("status").className = "lost";
  }
}

async function forever() {
  await recall();
  for (;;) {
    await ask();
    await new Promise((wake) => setTimeout(wake, PERIOD_MS));
  }
}

forever();
