// Finds elements as users do: by their visible text, role and accessible name. Each function returns null until it finds
// its element.
window.__find = (() => {
  const roles = {
    button: 'button, [role=button], summary',
    link: 'a[href], [role=link]',
    textbox: 'input:not([type=checkbox]):not([type=radio]), textarea, [role=textbox]',
    checkbox: 'input[type=checkbox], [role=checkbox]',
    switch: '[role=switch]',
    dialog: '[role=dialog], [role=alertdialog], dialog',
    menuitem: '[role^=menuitem]',
    option: '[role=option]',
    img: 'img, [role=img]',
    heading: 'h1, h2, h3, h4, [role=heading]',
    alert: '[role=alert]',
    row: 'tr, [role=row]',
    tab: '[role=tab]',
    progressbar: '[role=progressbar]',
    region: '[role=region], section[aria-labelledby], section[aria-label]',
  };
  const plain = (text) => (text ?? '').replace(/\s+/g, ' ').trim();
  const byIds = (ids) => (ids ?? '').split(/\s+/).filter(Boolean).map((id) => plain(document.getElementById(id)?.textContent)).join(' ');
  const isShown = (e) => {
    if (e.closest('[aria-hidden=true], [inert]')) return false;
    const box = (e.matches('input[type=checkbox]') ? (e.closest('label') ?? e) : e).getBoundingClientRect();
    return box.width > 0 && box.height > 0 && getComputedStyle(e).visibility !== 'hidden';
  };
  const nameOf = (e) =>
    plain(e.getAttribute('aria-label')) || plain(byIds(e.getAttribute('aria-labelledby'))) || plain(e.labels?.[0]?.textContent) || plain(e.innerText ?? e.textContent) || plain(e.getAttribute('title'));
  // An element whose name is equal to the given name comes before an element whose name contains it.
  const element = (role, name) => {
    const all = [...document.querySelectorAll(roles[role] ?? `[role=${role}]`)].filter(isShown);
    const named = all.map((e) => [e, nameOf(e)]);
    return (named.find(([, n]) => n === name) ?? named.find(([, n]) => n.includes(name)) ?? [null])[0];
  };
  const records = new Set();
  const seen = () => plain(document.body?.innerText);
  return {
    byRole: (role, name) => (element(role, name) ? true : null),
    noRole: (role, name) => (element(role, name) ? null : true),
    text: (text) => (seen().includes(text) ? true : null),
    noText: (text) => (seen().includes(text) ? null : true),
    described: (role, name, text) => (byIds(element(role, name)?.getAttribute('aria-describedby')).includes(text) ? true : null),
    record: (role, name) => {
      const look = (_, observer) => {
        if (!element(role, name)) return;
        records.add(`${role} ${name}`);
        observer.disconnect();
      };
      new MutationObserver(look).observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true });
      return true;
    },
    recorded: (role, name) => (records.has(`${role} ${name}`) ? true : null),
    selected: (selector) => (document.querySelector(selector) ? true : null),
    value: (role, name) => element(role, name).value,
    // centre returns the point where an element can be clicked. It waits until the element has been in one place for three
    // frames, and until nothing covers it there: a dialog or menu is moved to its place after it was first drawn.
    centre: async (role, name) => {
      const frame = () => new Promise((done) => requestAnimationFrame(done));
      for (let last = '', still = 0; ; await frame()) {
        const found = element(role, name);
        if (!found) continue;
        const e = found.matches('input[type=checkbox]') ? (found.closest('label') ?? found) : found;
        e.scrollIntoView({ block: 'nearest', inline: 'nearest' });
        const box = e.getBoundingClientRect();
        const at = [box.x + Math.min(box.width / 2, 60), box.y + box.height / 2];
        const top = document.elementFromPoint(...at);
        still = String(at) === last && top && (e.contains(top) || top.contains(e)) ? still + 1 : 0;
        last = String(at);
        if (still >= 2) return at;
      }
    },
    focus: (role, name) => {
      const e = element(role, name);
      e.focus();
      e.select?.();
      return document.activeElement === e;
    },
  };
})();
