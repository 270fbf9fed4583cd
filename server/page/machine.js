// What the machine does: /props, looked at while somebody sees it. It reads counts that are there and asks the model for nothing.

const SAMPLES = 120, ITEMS = [
  ['hot', 'Hot neurons'], ['cold', 'Cache of cold neurons'], ['dense', 'Other weights'], ['kv', 'KV cache'], ['scratch', 'Scratch'],
  ['predictor', 'Predictors'], ['engine', 'Accelerator'],
];
const SVG = 'http://www.w3.org/2000/svg';

function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let k = 0;
  while (n >= 1024 && k < 4) { n /= 1024; k++; }
  return `${n >= 100 || k === 0 ? Math.round(n) : n.toPrecision(3)} ${units[k]}`;
}
const number = n => n >= 100 ? Math.round(n).toLocaleString('en') : n >= 10 ? n.toFixed(1) : n.toFixed(2);

function svg(tag, given) {
  const e = document.createElementNS(SVG, tag);
  for (const [k, v] of Object.entries(given)) e.setAttribute(k, v);
  return e;
}

// A line of samples, one a second, that moves to the left; null: there was nothing to measure.
class Plot {
  constructor(at, name, format, most) {
    this.samples = [];
    Object.assign(this, { name, format, most });
    this.value = el('b', null, '–');
    this.plan = el('span');
    this.area = svg('path', { class: 'area' });
    this.line = svg('path', { class: 'now' });
    this.planned = svg('line', { class: 'plan', x1: 0, x2: SAMPLES - 1 });
    this.picture = svg('svg', { class: 'plot', viewBox: `0 0 ${SAMPLES - 1} 40`, preserveAspectRatio: 'none', role: 'img', 'aria-label': `${name}: nothing yet` });
    this.picture.append(this.area, this.line, this.planned);
    this.planned.style.display = 'none';
    this.top = el('span');
    at.append(el('div', { class: 'figure' }, this.value, this.plan), this.picture,
              el('div', { class: 'axis', 'aria-hidden': 'true' }, el('span', null, 'two minutes'), this.top));
  }
  put(v, planned, seconds) {
    for (let k = 0; k < Math.min(SAMPLES, Math.max(1, Math.round(seconds))); k++) this.samples.push(v);
    this.samples.splice(0, Math.max(0, this.samples.length - SAMPLES));
    const seen = this.samples.filter(s => s !== null), last = seen[seen.length - 1];
    const most = this.most || Math.max(...seen, planned || 0, 1e-9) * 1.08, y = s => (40 - 40 * Math.min(1, s / most)).toFixed(2);
    let line = '', area = '', from = -1;
    const shift = SAMPLES - this.samples.length;
    this.samples.forEach((s, k) => {
      if (s === null) { from = -1; return; }
      if (from < 0) { from = k; line += `M${k + shift} ${y(s)}h.01`; area += `M${k + shift} 40`; } else line += `L${k + shift} ${y(s)}`;
      area += `L${k + shift} ${y(s)}`;
      if (k + 1 === this.samples.length || this.samples[k + 1] === null) area += `L${k + shift} 40Z`;
    });
    this.line.setAttribute('d', line);
    this.area.setAttribute('d', area);
    this.planned.style.display = planned === null ? 'none' : '';
    if (planned !== null) { this.planned.setAttribute('y1', y(planned)); this.planned.setAttribute('y2', y(planned)); }
    this.value.textContent = last === undefined ? '–' : this.format(last);
    this.plan.replaceChildren(...planned === null ? [] : [el('i', { class: 'dash', 'aria-hidden': 'true' }), `planned ${this.format(planned)}`]);
    this.top.textContent = seen.length ? `${this.format(most)}` : '';
    this.picture.setAttribute('aria-label', `${this.name}: ${last === undefined ? 'nothing yet' : this.format(last)}` +
                              (planned === null ? '' : `, planned ${this.format(planned)}`));
  }
}

const share = v => `${(100 * v).toFixed(v < .1 || v > .9995 ? 1 : 0)} %`;
const plots = {
  speed: new Plot($('speed'), 'Tokens a second', number, 0),
  hits: new Plot($('hits'), 'Cache hit rate', share, 1),
  flash: new Plot($('flash'), 'Read from flash a second', v => `${bytes(v)}/s`, 0),
};

function show_memory(e) {
  const known = ITEMS.filter(([k]) => e.account[k] > 0).map(([k, name]) => [name, e.account[k]]);
  const rest = e.account_bytes - known.reduce((n, [, v]) => n + v, 0);
  const all = [...known, ['Program, tables, buffers', rest]].filter(([, v]) => v > 0);
  const bar = el('div', { class: 'stack', role: 'img', 'aria-label': `${bytes(e.account_bytes)} of ${bytes(e.memory_bytes)}` });
  const colour = k => k === all.length - 1 ? 'c7' : `c${k}`;
  all.forEach(([, v], k) => {
    const part = el('i', { class: colour(k) });
    part.style.width = `${100 * v / e.memory_bytes}%`;
    bar.append(part);
  });
  $('memory').replaceChildren(
    el('div', { class: 'figure' }, el('b', null, bytes(e.account_bytes)), el('span', null, `of ${bytes(e.memory_bytes)}; peak ${bytes(e.peak_bytes)}`)), bar,
    el('table', null, el('tbody', null, ...all.map(([name, v], k) =>
      el('tr', null, el('th', { scope: 'row' }, el('span', { class: `swatch ${colour(k)}`, 'aria-hidden': 'true' }), name), el('td', null, bytes(v)))))));
}

function show_facts(p) {
  const e = p.engine, facts = [
    ['Name', e.model], ['Context', `${p.n_ctx.toLocaleString('en')} tokens`], ['At once', `${p.total_slots}`], ['Threads', `${e.threads}, ${e.cpu}`],
    ['FFN', e.mode], ['Reads', `${e.io}${e.direct ? ', O_DIRECT' : ''}`], ['Made so far', `${e.tokens.toLocaleString('en')} tokens`],
  ];
  if (e.predicted.valid && e.decode.tokens > 0)
    facts.push(['From flash a token', `${bytes(e.measured.read_bytes)}, planned ${bytes(e.predicted.read_bytes)}`]);
  $('facts').replaceChildren(...facts.flatMap(([k, v]) => [el('dt', null, k), el('dd', null, v)]));
}

let last = null;
function show_machine(p) {
  const e = p.engine, d = e.decode, now = performance.now(), planned = v => e.predicted.valid ? v : null;
  const looked = s => s.cold_lookups - s.gate_lookups, found = s => s.cold_hits - s.gate_hits;
  if (last && last.name === p.model_alias && d.ms >= last.e.decode.ms) { // the same one, and not loaded anew
    const seconds = (now - last.now) / 1000, before = last.e.decode, tokens = d.tokens - before.tokens, ms = d.ms - before.ms, n = looked(d) - looked(before);
    plots.speed.put(tokens > 0 && ms > 0 ? 1000 * tokens / ms : null, planned(e.predicted.tokens_per_s), seconds);
    plots.hits.put(n > 0 ? (found(d) - found(before)) / n : null, e.account.cold > 0 ? planned(e.predicted.hit_rate) : null, seconds);
    plots.flash.put(Math.max(0, (e.read_bytes - last.e.read_bytes) / seconds), null, seconds);
  }
  last = { e, now, name: p.model_alias };
  const open = p.requests_open, waiting = Math.max(0, open - p.total_slots);
  $('machine-state').textContent = (open === 0 ? 'Idle.' : `${open - waiting} of ${p.total_slots} answered now${waiting ? `, ${waiting} waiting` : ''}.`) +
    (e.account.cold > 0 ? '' : ' All of the model is in memory.');
  show_memory(e);
  show_facts(p);
  return open;
}

let timer = 0;
const seen = () => !$('machine').hidden && document.visibilityState === 'visible';

// Once a second while something is made, else every third.
async function look() {
  clearTimeout(timer);
  timer = 0;
  if (!seen() || document.querySelector('#door[open]')) return;
  let open = 0;
  try {
    const r = await fetch('/props', { headers: headers() });
    const p = r.ok ? await r.json() : null;
    if (p?.engine) open = show_machine(p);
    else if (p) { $('machine-state').textContent = 'No model is loaded; the next message loads one.'; last = null; }
    else $('machine-state').textContent = r.status === 401 ? 'A key is needed.' : `The server says ${r.status}.`;
  } catch {
    $('machine-state').textContent = 'The server does not answer.';
    last = null;
  }
  if (!timer) timer = setTimeout(look, open || busy() ? 1000 : 3000);
}

function show_side(on) {
  $('machine').hidden = !on;
  $('machine-open').setAttribute('aria-expanded', String(on));
  if (on) look();
}
$('machine-open').addEventListener('click', () => { show_side($('machine').hidden); keep('machine', $('machine').hidden ? 'no' : 'yes'); });
$('machine-close').addEventListener('click', () => { show_side(false); $('machine-open').focus(); });
document.addEventListener('visibilitychange', () => seen() && look());
