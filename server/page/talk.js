// The conversation: a tree of messages, of which one path is shown. Who edits a message or tries an answer again begins a branch beside it;
// nothing is lost. It is kept in this browser.

const SAMPLING = [
  ['temperature', 'Temperature', 0, 10], ['top_p', 'Top p', 0, 1], ['top_k', 'Top k', 0, 1e6, 1], ['min_p', 'Min p', 0, 1],
  ['repeat_penalty', 'Repeat penalty', 0.01, 10], ['presence_penalty', 'Presence penalty', -2, 2], ['frequency_penalty', 'Frequency penalty', -2, 2],
  ['max_tokens', 'Tokens at most', 1, 1e7, 1], ['seed', 'Seed', 0, 4294967295, 1], ['stop', 'Stop at'],
];
const EMPTY = { nodes: [], pick: {} };
let state = load('talk') || structuredClone(EMPTY), settings = load('settings') || {}, model = {}, models = [], running = null, full = false;
let key = sessionStorage.getItem('thermo.key'), asking = null;

// ---- kept in the browser ----

function load(name) {
  try { return JSON.parse(localStorage.getItem(`thermo.${name}`)); } catch { return null; }
}
function keep(name, value) {
  try { localStorage.setItem(`thermo.${name}`, JSON.stringify(value)); } catch {
    if (!full) say('This browser has no room to keep the conversation: it is gone when the page is left.');
    full = true;
  }
}
function save() { keep('talk', state); }
let saved = 0;
function save_soon() { if (performance.now() - saved > 1000) { saved = performance.now(); save(); } }

// ---- what the server is asked ----

function busy() { return running !== null; }
function headers(more) { return { ...(key ? { Authorization: `Bearer ${key}` } : {}), ...more }; }

function ask_key() {
  asking = asking || new Promise(done => {
    const d = $('door');
    $('door-why').textContent = key ? 'The server does not know this key.' : 'This server answers those who have one of its keys.';
    $('key').value = '';
    d.returnValue = '';
    d.showModal();
    d.addEventListener('close', () => {
      const given = d.returnValue === 'go';
      if (given) { key = $('key').value; sessionStorage.setItem('thermo.key', key); }
      asking = null;
      done(given);
    }, { once: true });
  });
  return asking;
}
$('door-form').addEventListener('submit', e => { e.preventDefault(); $('door').close('go'); });
$('door-cancel').addEventListener('click', () => $('door').close(''));

async function api(path, options) {
  for (;;) {
    const r = await fetch(path, { ...options, headers: headers(options && options.headers) });
    if (r.status !== 401 || !await ask_key()) return r;
  }
}

// ---- the tree ----

function path() {
  const all = [];
  for (let at = -1; (at = state.pick[at] ?? -1) >= 0;) all.push(at);
  return all;
}
function add(role, parent, text) {
  state.nodes.push({ role, parent, text });
  return state.pick[parent] = state.nodes.length - 1;
}
function beside(i) {
  return state.nodes.flatMap((n, k) => n.parent === state.nodes[i].parent ? [k] : []);
}
// What is above `skip` of a path the context has no room for any more.
const skipped = () => Math.min(state.skip || 0, Math.max(0, path().length - 1));

function messages_for(i) {
  const all = [];
  for (let at = state.nodes[i].parent; at >= 0; at = state.nodes[at].parent) all.unshift(state.nodes[at]);
  const sent = all.slice(state.skip || 0).map(n => n.thought ? { role: n.role, content: n.text, reasoning_content: n.thought } : { role: n.role, content: n.text });
  return settings.system ? [{ role: 'system', content: settings.system }, ...sent] : sent;
}

function request(i) {
  const q = { messages: messages_for(i), stream: true, stream_options: { include_usage: true } };
  for (const [name, , , , step] of SAMPLING) {
    const v = settings[name];
    if (v !== undefined && v !== '') q[name] = name === 'stop' ? v : step ? Math.round(Number(v)) : Number(v);
  }
  if (settings.thinking) q.reasoning_effort = settings.thinking;
  if (models.length > 1 && chosen()) q.model = settings.model;
  return q;
}

// Of several models the one that is chosen here, if the server has it still.
const chosen = () => models.find(m => m.id === settings.model);
function show_model() {
  const m = chosen() || models.find(x => x.loaded) || models[0];
  if (!m) return;
  model = { name: m.id, context: m.meta.n_ctx };
  $('model').textContent = m.id;
  document.title = `${m.id} – Thermocline`;
}
async function look_at_models() {
  const r = await api('/v1/models');
  models = r.ok ? (await r.json()).data : [];
  $('models').hidden = models.length < 2;
  field('model').replaceChildren(field('model').options[0], ...models.map(m => el('option', { value: m.id }, m.id)));
  field('model').value = chosen() ? settings.model : '';
  show_model();
}

// ---- an answer ----

async function fault_of(r) {
  let e = {};
  try { e = (await r.json()).error || {}; } catch { /* no JSON: the status says it */ }
  const again = r.headers.get('Retry-After');
  return Object.assign(new Error(e.message || `The server says ${r.status}.`), { code: e.code, again });
}

// Events of a stream as they come.
async function* events(r) {
  const reader = r.body.getReader(), decoder = new TextDecoder();
  for (let rest = '';;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + decoder.decode(value, { stream: true })).split('\n\n');
    rest = parts.pop();
    for (const part of parts)
      if (part.startsWith('data: ')) yield part.slice(6);
  }
}

async function begin_stream(i, signal) {
  for (;;) {
    const r = await api('/v1/chat/completions', { method: 'POST', body: JSON.stringify(request(i)), signal, headers: { 'Content-Type': 'application/json' } });
    if (r.ok) return r;
    const e = await fault_of(r), sent = messages_for(i).length - (settings.system ? 1 : 0);
    if (e.code !== 'context_length_exceeded' || sent < 3) throw e;
    if (!state.skip) say('The context is full: the model no longer sees the oldest messages.');
    state.skip = (state.skip || 0) + 2;
    show();
  }
}

function take(node, event) {
  if (event.error) throw new Error(event.error.message);
  const choice = event.choices && event.choices[0], delta = choice && choice.delta || {};
  if (event.usage) node.usage = { prompt: event.usage.prompt_tokens, made: event.usage.completion_tokens, kept: (event.usage.prompt_tokens_details || {}).cached_tokens || 0 };
  if (delta.reasoning_content) node.thought = (node.thought || '') + delta.reasoning_content;
  if (delta.content) node.text += delta.content;
  if (choice && choice.finish_reason) node.ended = choice.finish_reason;
  return Boolean(delta.content || delta.reasoning_content);
}

async function answer(i) {
  const node = state.nodes[i], controller = new AbortController(), began = performance.now();
  let first = 0, whole = false;
  running = { i, controller };
  show();
  say('The answer is being written.');
  look();
  try {
    for await (const data of events(await begin_stream(i, controller.signal))) {
      if (data === '[DONE]') { whole = true; break; }
      if (take(node, JSON.parse(data)) && !first) { first = performance.now(); node.first = Math.round(first - began); }
      draw_soon();
      save_soon();
    }
    if (!whole) throw new Error('The connection broke off.');
    if (first && node.usage && node.usage.made > 1) node.rate = 1000 * (node.usage.made - 1) / (performance.now() - first);
  } catch (e) {
    if (e instanceof TypeError) await new Promise(done => setTimeout(done, 300)); // a page that is left has its connections cut off, and ends here
    node.ended = controller.signal.aborted ? 'stopped' : 'failed';
    if (node.ended === 'failed') node.fault = `${e instanceof TypeError ? 'The server does not answer.' : e.message}${e.again ? ` It may have room in ${e.again} s.` : ''}`;
  }
  if (models.length > 1) await look_at_models().catch(() => 0); // it is loaded now, and says its context
  running = null;
  save();
  show();
  say(node.fault || (node.ended === 'stopped' ? 'The answer was stopped.' : 'The answer is complete.'));
}

function stop() { if (running) running.controller.abort(); }

function send(text, parent) {
  if (busy() || !text.trim()) return false;
  const user = add('user', parent, text);
  answer(add('assistant', user, ''));
  return true;
}
function again(i) {
  if (busy()) return;
  state.skip = 0;
  answer(add('assistant', state.nodes[i].parent, ''));
  $('ask').focus();
}

// ---- what is shown ----

function say(text) { $('said').textContent = text; }

async function copy_text(text) {
  try { await navigator.clipboard.writeText(text); } catch {
    const t = el('textarea', { class: 'unseen', 'aria-hidden': 'true' }), was = document.activeElement;
    t.value = text;
    document.body.append(t);
    t.select();
    document.execCommand('copy');
    t.remove();
    was.focus();
  }
  say('Copied.');
}

function versions(i) {
  const all = beside(i), k = all.indexOf(i);
  if (all.length < 2) return [];
  const go = (to, name) => el('button', { type: 'button', class: 'quiet', disabled: busy() || to < 0 || to >= all.length, 'aria-label': `${name} version`, click: () => {
    state.pick[state.nodes[i].parent] = all[to];
    save();
    show();
    const there = [...document.querySelectorAll(`#turn-${all[to]} .foot button`)].filter(b => !b.disabled);
    (there.find(b => b.getAttribute('aria-label') === `${name} version`) || there[0]).focus();
  } }, name === 'Earlier' ? '‹' : '›');
  return [go(k - 1, 'Earlier'), el('span', { class: 'small' }, `${k + 1} of ${all.length}`), go(k + 1, 'Later')];
}

function figures(n) {
  const all = [];
  if (n.usage) all.push(`${n.usage.made} token${n.usage.made === 1 ? '' : 's'}`);
  if (n.rate) all.push(`${number(n.rate)} a second`);
  if (n.first !== undefined) all.push(`first after ${n.first >= 1000 ? `${(n.first / 1000).toFixed(1)} s` : `${n.first} ms`}`);
  if (n.usage && n.usage.kept) all.push(`${n.usage.kept} of ${n.usage.prompt} read before`);
  return all.join(' · ');
}

function note_of(n) {
  if (n.fault) return el('p', { class: 'note fault', role: 'alert' }, n.fault);
  if (n.ended === 'stopped') return el('p', { class: 'note' }, 'Stopped.');
  if (!n.ended) return el('p', { class: 'note' }, 'Broken off: the page was left.');
  if (n.ended !== 'length') return null;
  const context = n.usage && model.context && n.usage.prompt + n.usage.made >= model.context;
  return el('p', { class: 'note' }, context ? `Cut off: the context of ${model.context.toLocaleString('en')} tokens is full.`
                                            : 'Cut off: as many tokens as the settings allow.');
}

function edit(i) {
  const n = state.nodes[i], area = el('textarea', { rows: Math.min(12, n.text.split('\n').length + 1), 'aria-label': 'Your message, edited' });
  area.value = n.text;
  const done = () => { if (area.value.trim() && !busy()) { state.skip = 0; send(area.value, n.parent); $('ask').focus(); } };
  const cancel = () => { show(); document.querySelector(`#turn-${i} .foot button`).focus(); };
  area.addEventListener('keydown', e => {
    if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) { e.preventDefault(); done(); }
    if (e.key === 'Escape') { e.stopPropagation(); cancel(); }
  });
  $(`turn-${i}`).replaceChildren(el('h2', null, 'You'), el('div', { class: 'edit' }, area, el('div', { class: 'row' },
    el('button', { type: 'button', class: 'quiet', click: cancel }, 'Cancel'), el('button', { type: 'button', class: 'main', click: done }, 'Send'))));
  area.focus();
}

const button = (text, click, name) => el('button', { type: 'button', class: 'quiet', click, 'aria-label': name, disabled: busy() }, text);

function turn(i) {
  const n = state.nodes[i], user = n.role === 'user', on = running && running.i === i;
  const t = el('article', { class: `turn ${user ? 'user' : 'model'}`, id: `turn-${i}`, 'aria-label': user ? 'You' : 'Model' }, el('h2', null, user ? 'You' : model.name || 'Model'));
  if (user) t.append(el('div', { class: 'body' }, n.text));
  else { t.append(el('div', { class: 'body' })); draw(i, t); }
  const foot = el('div', { class: 'foot' });
  if (user) foot.append(button('Edit', () => edit(i), 'Edit this message'));
  else if (!on) foot.append(button('Try again', () => again(i), 'Try this answer again'));
  if (!on && n.text) foot.append(button('Copy', () => copy_text(n.text), user ? 'Copy this message' : 'Copy this answer'));
  foot.append(...versions(i));
  if (!user && !on) foot.append(el('span', { class: 'figures' }, figures(n)));
  const note = user || on ? null : note_of(n);
  t.append(...note ? [note, foot] : [foot]);
  return t;
}

// The text of an answer, as far as it is.
function draw(i, t) {
  const n = state.nodes[i], body = t.querySelector('.body'), on = running && running.i === i;
  let thought = body.querySelector('.thought'), text = body.querySelector(':scope > .text');
  if (!text) body.append(text = el('div', { class: 'text' }));
  if (n.thought && !thought) body.prepend(thought = el('details', { class: 'thought' }, el('summary'), el('div', { class: 'text' })));
  if (thought) {
    thought.firstChild.textContent = on && !n.text ? 'Thinking …' : 'Thoughts';
    show_text(thought.lastChild, n.thought.trim());
  }
  show_text(text, n.text);
  body.classList.toggle('wait', Boolean(on) && !n.text);
}

let frame = 0;
function draw_soon() {
  frame = frame || requestAnimationFrame(() => {
    frame = 0;
    const t = running && $(`turn-${running.i}`), talk = $('talk'), low = talk.scrollHeight - talk.scrollTop - talk.clientHeight < 80;
    if (t) draw(running.i, t);
    if (low) talk.scrollTop = talk.scrollHeight;
  });
}

function show() {
  const all = path(), talk = $('talk'), low = talk.scrollHeight - talk.scrollTop - talk.clientHeight < 80 || busy();
  const parts = all.map(turn), skip = skipped();
  if (skip) parts.splice(skip, 0, el('p', { class: 'turn note', id: 'skipped' }, 'The model no longer sees what is above: the context is full.'));
  if (!all.length) parts.push(el('div', { class: 'empty' }, el('strong', null, 'Nothing has been said yet.'), el('p', null, 'What you write stays between this browser and the server.'),
    load('before') ? el('p', null, button('Bring the last conversation back', back)) : null));
  talk.replaceChildren(...parts);
  talk.setAttribute('aria-busy', String(busy()));
  $('send').hidden = busy();
  $('stop').hidden = !busy();
  $('new').disabled = busy() || !state.nodes.length;
  if (low) talk.scrollTop = talk.scrollHeight;
}

function back() {
  state = load('before') || structuredClone(EMPTY);
  localStorage.removeItem('thermo.before');
  save();
  show();
  $('ask').focus();
}

// ---- controls ----

function grow() {
  const a = $('ask');
  a.style.height = 'auto';
  a.style.height = `${Math.min(a.scrollHeight + 2, innerHeight * .4)}px`;
}

$('composer').addEventListener('submit', e => {
  e.preventDefault();
  const last = path().pop() ?? -1;
  if (send($('ask').value, last)) { $('ask').value = ''; keep('draft', ''); grow(); }
  $('ask').focus();
});
$('ask').addEventListener('keydown', e => {
  if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) { e.preventDefault(); $('composer').requestSubmit(); }
});
$('ask').addEventListener('input', () => { grow(); keep('draft', $('ask').value); });
$('stop').addEventListener('click', () => { stop(); $('ask').focus(); });
document.addEventListener('keydown', e => { if (e.key === 'Escape' && busy() && !document.querySelector('dialog[open]')) stop(); });
$('new').addEventListener('click', () => {
  keep('before', state);
  state = structuredClone(EMPTY);
  save();
  show();
  $('ask').focus();
});

for (const [name, label, least, most, step] of SAMPLING) {
  const number = least !== undefined;
  $('sampling').append(el('div', null, el('label', { for: `set-${name}` }, label), el('input', number
    ? { id: `set-${name}`, type: 'number', inputmode: 'decimal', min: least, max: most, step: step || 'any' } : { id: `set-${name}`, type: 'text', autocomplete: 'off' })));
}
const FIELDS = ['system', 'model', 'thinking', 'theme', ...SAMPLING.map(s => s[0])];
const field = name => $(`set-${name}`);
function take_settings() {
  for (const f of FIELDS) if (field(f).validity.valid) settings[f] = field(f).value;
  keep('settings', settings);
  theme();
  show_model();
}
function theme() { if (settings.theme) document.documentElement.dataset.theme = settings.theme; else delete document.documentElement.dataset.theme; }
$('settings').addEventListener('input', take_settings);
$('settings-reset').addEventListener('click', () => { for (const f of FIELDS) field(f).value = ''; take_settings(); });
$('settings-open').addEventListener('click', () => { for (const f of FIELDS) field(f).value = settings[f] || ''; $('settings').showModal(); });

addEventListener('pagehide', save);
addEventListener('storage', e => { if (e.key === 'thermo.talk' && !busy()) { state = load('talk') || structuredClone(EMPTY); show(); } });

async function start() {
  theme();
  $('ask').value = load('draft') || '';
  grow();
  show();
  $('talk').scrollTop = $('talk').scrollHeight;
  show_side(false);
  try {
    await look_at_models();
    show();
  } catch { say('The server does not answer.'); }
  show_side(load('machine') ? load('machine') === 'yes' && innerWidth > 960 : innerWidth > 960);
}
if (innerWidth > 600) $('ask').focus();
start();
