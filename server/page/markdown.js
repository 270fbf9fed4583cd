'use strict';
// Markdown as nodes of the document. Every text of a model becomes a text node; no string is ever read as HTML. Work is bounded: depth,
// and the length of what is looked at for marks.

const DEPTH = 8, MARKED = 16384;

function $(id) { return document.getElementById(id); }

function el(tag, given, ...children) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(given || {})) {
    if (v === undefined || v === null || v === false) continue;
    if (typeof v === 'function') e.addEventListener(k, v);
    else if (k === 'class') e.className = v;
    else e.setAttribute(k, v === true ? '' : v);
  }
  e.append(...children.filter(c => c !== null && c !== undefined));
  return e;
}

// What a link may lead to; null: it is text.
function safe(url) {
  try {
    const u = new URL(url.trim());
    return ['http:', 'https:', 'mailto:'].includes(u.protocol) ? u.href : null;
  } catch { return null; }
}

function link(url, text) {
  const to = safe(url);
  return to ? el('a', { href: to, rel: 'noopener noreferrer nofollow', target: '_blank', referrerpolicy: 'no-referrer' }, ...text) : null;
}

const LINK = /!?\[((?:[^[\]\\]|\\[\s\S]){0,1000})\]\(\s{0,3}<?([^\s()<>]{0,2000}(?:\([^\s()<>]{0,200}\)[^\s()<>]{0,500})?)>?(?:\s{1,3}"[^"]{0,300}")?\s{0,3}\)/y;
const BARE = /https?:\/\/[^\s<>"'`]{1,2000}/y;
const WORD = /[\p{L}\p{N}_]/u;

// Marks within a paragraph. dead: delimiters that close nowhere behind here.
function inline(to, text, depth, linked) {
  let plain = '';
  const dead = new Set();
  const flush = () => { if (plain) to.append(plain); plain = ''; };
  if (text.length > MARKED || depth > DEPTH) { to.append(text); return; }
  const within = (tag, inner) => { flush(); const e = el(tag); inline(e, inner, depth + 1, linked); to.append(e); };
  const closing = (mark, from) => {
    if (dead.has(mark)) return -1;
    for (let at = text.indexOf(mark, from); at >= 0; at = text.indexOf(mark, at + 1)) {
      const before = text[at - 1], after = text[at + mark.length] || ' ';
      if (at > from && before !== '\\' && !/\s/.test(before) && !(mark.length === 1 && (after === mark || before === mark))
          && !(mark[0] === '_' && WORD.test(after))) return at;
    }
    dead.add(mark);
    return -1;
  };
  for (let i = 0; i < text.length;) {
    const c = text[i], next = text[i + 1] || '';
    if (c === '\\' && /[!-/:-@[-`{-~]/.test(next)) { plain += next; i += 2; continue; }
    if (c === '`') {
      let n = 1;
      while (text[i + n] === '`') n++;
      const mark = '`'.repeat(n);
      let at = dead.has(mark) ? -1 : text.indexOf(mark, i + n);
      while (at >= 0 && text[at + n] === '`') {
        while (text[at] === '`') at++;
        at = text.indexOf(mark, at);
      }
      if (at >= 0) {
        flush();
        to.append(el('code', null, text.slice(i + n, at).replace(/\n/g, ' ').replace(/^ (.*\S.*) $/, '$1')));
        i = at + n;
        continue;
      }
      dead.add(mark);
      plain += mark;
      i += n;
      continue;
    }
    if (c === '*' || (c === '_' && !WORD.test(text[i - 1] || ' ')) || (c === '~' && next === '~')) {
      const mark = next === c ? c + c : c, at = /\s/.test(text[i + mark.length] || ' ') ? -1 : closing(mark, i + mark.length);
      if (at >= 0) {
        within(c === '~' ? 'del' : mark.length === 2 ? 'strong' : 'em', text.slice(i + mark.length, at));
        i = at + mark.length;
      } else {
        plain += mark;
        i += mark.length;
      }
      continue;
    }
    if ((c === '[' || (c === '!' && next === '[')) && !linked) {
      LINK.lastIndex = i;
      const m = LINK.exec(text), words = m && el('span');
      if (m) inline(words, m[1] || m[2], depth + 1, true);
      const a = m && link(m[2], words.childNodes);
      if (a) { flush(); to.append(a); i += m[0].length; continue; }
      if (m) { plain += m[0]; i += m[0].length; continue; }
    }
    if (c === 'h' && !linked && !WORD.test(text[i - 1] || ' ')) {
      BARE.lastIndex = i;
      const m = BARE.exec(text), url = m && m[0].replace(/[.,;:!?)\]*_~]+$/, ''), a = url && link(url, [url]);
      if (a) { flush(); to.append(a); i += url.length; continue; }
    }
    if (c === '\n') { plain = plain.replace(/ +$/, ''); flush(); to.append(el('br')); i++; continue; }
    plain += c;
    i++;
  }
  flush();
}

// ---- code ----

const KEYWORDS = new Set(('abstract as assert async await auto bool boolean break byte case catch char class const continue def default del ' +
  'do double elif else end enum except export extends extern false final finally float fn for from func function global goto if impl ' +
  'implements import in int interface is lambda let local long loop match mod module mut namespace new nil none None not null or and package ' +
  'pass private protected pub public raise return self short signed sizeof static str string struct super switch then this throw trait true ' +
  'True False try type typedef typeof union unsigned use using val var void where while with yield select from where insert into update ' +
  'delete create table join on group by order limit echo fi done esac SELECT FROM WHERE INSERT INTO UPDATE DELETE CREATE TABLE JOIN ON GROUP ' +
  'BY ORDER LIMIT AND OR NOT NULL AS').split(' '));
const HASHED = /^(py|python|sh|bash|zsh|shell|console|ruby|rb|perl|r|ya?ml|toml|make|makefile|dockerfile|nix|julia|elixir|ini|conf)$/;
const DASHED = /^(sql|lua|haskell|hs|ada)$/, PLAIN = /^(|text|txt|plain|plaintext|md|markdown|html|xml|svg|diff|csv|log)$/;

function paint(to, code, language) {
  const name = language.toLowerCase();
  if (PLAIN.test(name) || code.length > 65536) { to.append(code); return; }
  const note = HASHED.test(name) ? '#[^\\n]*' : DASHED.test(name) ? '--[^\\n]*' : '\\/\\/[^\\n]*|\\/\\*(?:[^*]|\\*(?!\\/))*(?:\\*\\/)?';
  const all = new RegExp(`("(?:[^"\\\\\\n]|\\\\.)*"?|'(?:[^'\\\\\\n]|\\\\.)*'?|\`(?:[^\`\\\\]|\\\\.)*\`?)|(${note})|(\\b\\d[\\w.]*)|([A-Za-z_]\\w*)`, 'g');
  let from = 0;
  for (const m of code.matchAll(all)) {
    const kind = m[1] ? 's' : m[2] ? 'm' : m[3] ? 'n' : KEYWORDS.has(m[4]) ? 'k' : '';
    if (!kind) continue;
    to.append(code.slice(from, m.index), el('span', { class: kind }, m[0]));
    from = m.index + m[0].length;
  }
  to.append(code.slice(from));
}

function code_block(code, language) {
  const inner = el('code');
  const copy = el('button', { type: 'button', class: 'quiet', 'aria-label': `Copy ${language || 'code'}`, click: () => copy_text(code) }, 'Copy');
  paint(inner, code, language);
  return el('div', { class: 'code' }, el('div', { class: 'row' }, el('span', null, language || 'text'), copy),
            el('pre', { tabindex: '0', role: 'group', 'aria-label': `${language || 'code'}, a block` }, inner));
}

// ---- blocks ----

const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^`]*)$/, HEAD = /^ {0,3}(#{1,6})[ \t]+(.*)$/, RULE = /^ {0,3}([-*_])(?: *\1){2,} *$/;
const QUOTE = /^ {0,3}> ?/, ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])( {1,4}|\t|$)/, ROW = /^ *\|? *:?-+:? *(\| *:?-+:? *)*\|? *$/;

function cells(line) {
  const all = [];
  let cell = '', s = line.trim().replace(/^\|/, '').replace(/([^\\])\|$/, '$1');
  for (let i = 0; i < s.length; i++)
    if (s[i] === '\\' && s[i + 1] === '|') { cell += '|'; i++; } else if (s[i] === '|') { all.push(cell.trim()); cell = ''; } else cell += s[i];
  return [...all, cell.trim()];
}

const is_table = (lines, i) => i + 1 < lines.length && lines[i].includes('|') && lines[i + 1].includes('-') && lines[i + 1].length < 2000 &&
  ROW.test(lines[i + 1]) && cells(lines[i]).length === cells(lines[i + 1]).length;

const begins = (lines, i) => FENCE.test(lines[i]) || HEAD.test(lines[i]) || RULE.test(lines[i]) || QUOTE.test(lines[i]) || is_table(lines, i) ||
  (ITEM.test(lines[i]) && lines[i].trim().length > 1);

function table(lines) {
  const sides = cells(lines[1]).map(c => /^:-*:$/.test(c) ? 'c' : /:$/.test(c) ? 'r' : null);
  const row = (line, tag) => {
    const all = cells(line);
    return el('tr', null, ...sides.map((side, k) => {
      const e = el(tag, { class: side, scope: tag === 'th' ? 'col' : null });
      inline(e, all[k] || '', 0, false);
      return e;
    }));
  };
  return el('div', { class: 'wide', tabindex: '0', role: 'group', 'aria-label': 'Table' }, el('table', null, el('thead', null, row(lines[0], 'th')),
            el('tbody', null, ...lines.slice(2).map(l => row(l, 'td')))));
}

function list(lines, depth) {
  const ordered = /\d/.test(ITEM.exec(lines[0])[2]), items = [];
  for (const line of lines) {
    const m = ITEM.exec(line), last = items[items.length - 1];
    if (m && (!last || m[1].length < last.width) && /\d/.test(m[2]) === ordered)
      items.push({ width: m[1].length + m[2].length + (m[3].trim() === '' ? Math.max(1, m[3].length) : 1), lines: [line.slice(m[0].length)] });
    else
      last.lines.push(line.slice(0, last.width).trim() === '' ? line.slice(last.width) : line);
  }
  const tight = items.every((item, n) => !item.lines.some((l, k) => k && l.trim() === '' && (k + 1 < item.lines.length || n + 1 < items.length)));
  return el(ordered ? 'ol' : 'ul', { start: ordered ? parseInt(lines[0].trim(), 10) : null }, ...items.map(i => {
    const e = el('li');
    for (const b of blocks(i.lines, depth + 1)) {
      const made = b.make();
      if (tight && made.tagName === 'P') e.append(...made.childNodes); else e.append(made);
    }
    return e;
  }));
}

// Each block: the text that it is made from, and make().
function blocks(lines, depth) {
  const all = [];
  const add = (from, to, make) => all.push({ source: lines.slice(from, to).join('\n'), make });
  for (let i = 0; i < lines.length;) {
    const from = i, line = lines[i];
    let m;
    if (line.trim() === '') { i++; continue; }
    if (depth > DEPTH) {
      i = lines.length;
      add(from, i, () => el('p', null, lines.slice(from).join('\n')));
    } else if ((m = FENCE.exec(line))) {
      const [, mark, said] = m, indent = line.search(/\S/), inner = [];
      for (i++; i < lines.length && !(lines[i].trim().startsWith(mark) && lines[i].trim().replaceAll(mark[0], '') === ''); i++)
        inner.push(lines[i].slice(0, indent).trim() === '' ? lines[i].slice(indent) : lines[i]);
      i++;
      add(from, i, () => code_block(inner.join('\n'), said.trim().split(/\s/)[0].slice(0, 40)));
    } else if ((m = HEAD.exec(line))) {
      i++;
      const [, marks, text] = m;
      add(from, i, () => { const e = el(`h${Math.min(6, marks.length + 2)}`); inline(e, text.replace(/[ \t]#+[ \t]*$/, ''), 0, false); return e; });
    } else if (RULE.test(line)) {
      i++;
      add(from, i, () => el('hr'));
    } else if (QUOTE.test(line)) {
      while (i < lines.length && QUOTE.test(lines[i])) i++;
      const inner = lines.slice(from, i).map(l => l.replace(QUOTE, ''));
      add(from, i, () => el('blockquote', null, ...blocks(inner, depth + 1).map(b => b.make())));
    } else if (ITEM.test(line)) {
      const ordered = /\d/.test(ITEM.exec(line)[2]);
      for (i++; i < lines.length; i++) {
        const next = ITEM.exec(lines[i]), blank = lines[i].trim() === '';
        if (blank && !(i + 1 < lines.length && (/^(\t| {2,})/.test(lines[i + 1]) || ITEM.test(lines[i + 1])))) break;
        if (RULE.test(lines[i]) || (next && /\d/.test(next[2]) !== ordered && next[1].length < 2)) break;
        if (!next && !blank && !/^(\t| {2,})/.test(lines[i]) && begins(lines, i)) break;
      }
      const inner = lines.slice(from, i).map(l => l.replace(/\t/g, '    '));
      add(from, i, () => list(inner, depth));
    } else if (is_table(lines, i)) {
      for (i += 2; i < lines.length && lines[i].includes('|'); i++) ;
      const inner = lines.slice(from, i);
      add(from, i, () => table(inner));
    } else {
      for (i++; i < lines.length && lines[i].trim() !== '' && !begins(lines, i); i++) ;
      const inner = lines.slice(from, i).map(l => l.trimStart()).join('\n');
      add(from, i, () => { const e = el('p'); inline(e, inner, 0, false); return e; });
    }
  }
  return all;
}

// Makes what `to` shows equal to the text; blocks that are as they were are left alone.
function show_text(to, text) {
  const all = blocks(text.replace(/\r\n?/g, '\n').split('\n'), 0), old = to.shown || [];
  let same = 0;
  while (same < all.length && same < old.length && old[same] === all[same].source) same++;
  while (to.childNodes.length > same) to.lastChild.remove();
  for (const b of all.slice(same)) to.append(b.make());
  to.shown = all.map(b => b.source);
}
