import { useVirtualizer } from '@tanstack/react-virtual';
import { useRef } from 'react';
import type { Act } from '../../actions/useVolumeAction';
import type { Volume } from '../../api/types';
import { CheckboxField } from '../../components/CheckboxField';
import { fullNameOf } from '../../lib/names';
import { toggled, type Sort } from '../../lib/table';
import type { Column } from './columns';
import { VolumeMenu } from './VolumeMenu';

// rowHeight is the height of each row, in pixels. tables.css has the same number.
const rowHeight = 40;

// ListProps are the properties of the table and of the cards.
export interface ListProps {
  volumes: Volume[];
  columns: readonly Column[];
  sort: Sort;
  onSort: (sort: Sort) => void;
  selected: ReadonlySet<string>;
  onSelect: (selected: Set<string>) => void;
  act: Act;
}

// VolumeTable draws only the visible rows, so that thousands of rows scroll smoothly.
export function VolumeTable({ volumes, columns, sort, onSort, selected, onSelect, act }: ListProps) {
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({ count: volumes.length, getScrollElement: () => scroller.current, estimateSize: () => rowHeight, overscan: 12 });
  const rows = virtual.getVirtualItems();
  const before = rows[0]?.start ?? 0;
  const after = virtual.getTotalSize() - (rows[rows.length - 1]?.end ?? 0);
  const all = volumes.length > 0 && volumes.every((v) => selected.has(v.name));
  return (
    // A region that scrolls must be reachable by keyboard.
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
    <div className="table-scroll" ref={scroller} role="region" aria-label="Table of volumes" tabIndex={0}>
      <table className="table" aria-rowcount={volumes.length + 1}>
        <thead>
          <tr aria-rowindex={1}>
            <th className="check">
              <CheckboxField
                label="Select all volumes that are shown"
                isSelected={all}
                isIndeterminate={!all && volumes.some((v) => selected.has(v.name))}
                onChange={(on) => onSelect(on ? new Set(volumes.map((v) => v.name)) : new Set())}
              />
            </th>
            {columns.map((c) => (
              <SortableHeader key={c.id} column={c} sort={sort} onSort={onSort} />
            ))}
            <th className="menu">
              <span className="hidden">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {before > 0 && <Gap height={before} columns={columns.length + 2} />}
          {rows.map((row) => {
            const v = volumes[row.index];
            if (v === undefined) return null;
            return (
              <tr key={v.name} aria-rowindex={row.index + 2} className={selected.has(v.name) ? 'selected' : ''}>
                <td className="check">
                  <CheckboxField label={`Select ${fullNameOf(v)}`} isSelected={selected.has(v.name)} onChange={(on) => onSelect(toggled(selected, v.name, on))} />
                </td>
                {columns.map((c) =>
                  c.id === 'name' ? (
                    <th key={c.id} scope="row">
                      {c.cell(v)}
                    </th>
                  ) : (
                    <td key={c.id} className={c.isNumber ? 'number' : ''}>
                      {c.cell(v)}
                    </td>
                  ),
                )}
                <td className="menu">
                  <VolumeMenu volume={v} act={act} />
                </td>
              </tr>
            );
          })}
          {after > 0 && <Gap height={after} columns={columns.length + 2} />}
        </tbody>
      </table>
    </div>
  );
}

function Gap({ height, columns }: { height: number; columns: number }) {
  return (
    <tr aria-hidden="true" className="gap">
      <td colSpan={columns} style={{ height }} />
    </tr>
  );
}

function SortableHeader({ column, sort, onSort }: { column: Column; sort: Sort; onSort: (sort: Sort) => void }) {
  const isSorted = sort.column === column.id;
  return (
    <th scope="col" style={{ minWidth: column.width }} className={column.isNumber ? 'number' : ''} aria-sort={isSorted ? (sort.descending ? 'descending' : 'ascending') : 'none'}>
      <button type="button" className="sort" onClick={() => onSort({ column: column.id, descending: isSorted && !sort.descending })}>
        {column.name}
        <span aria-hidden="true">{isSorted ? (sort.descending ? ' ↓' : ' ↑') : ''}</span>
      </button>
    </th>
  );
}
