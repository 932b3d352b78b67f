// Sorts a table by the column whose head is clicked: numbers, the highest first, or text.
const number = text => {
  const value = parseFloat(text.replace('\u2212', '-'));
  return isNaN(value) ? -Infinity : value;
};
const sort = (table, head) => {
  const column = head.cellIndex, isNumber = head.style.textAlign === 'right';
  const before = head.getAttribute('aria-sort');
  const descends = before ? before === 'ascending' : isNumber;
  const text = row => row.cells[column].textContent;
  const compare = isNumber
    ? (a, b) => number(text(a)) - number(text(b))
    : (a, b) => text(a).localeCompare(text(b), 'en', {numeric: true});
  const rows = [...table.tBodies[0].rows];
  rows.sort((a, b) => (descends ? compare(b, a) : compare(a, b)) || 0);
  table.tBodies[0].append(...rows);
  for (const other of head.parentNode.cells) other.removeAttribute('aria-sort');
  head.setAttribute('aria-sort', descends ? 'descending' : 'ascending');
};
for (const table of document.querySelectorAll('table')) {
  for (const head of table.querySelectorAll('th')) {
    head.tabIndex = 0;
    head.addEventListener('click', () => sort(table, head));
    head.addEventListener('keydown', event => {
      if (event.key === 'Enter') sort(table, head);
    });
  }
}
