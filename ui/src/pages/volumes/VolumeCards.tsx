import { useWindowVirtualizer } from '@tanstack/react-virtual';
import { useLayoutEffect, useRef, useState } from 'react';
import type { Volume } from '../../api/types';
import { Button } from '../../components/Button';
import { CheckboxField } from '../../components/CheckboxField';
import { SelectField } from '../../components/SelectField';
import { fullNameOf } from '../../lib/names';
import { toggled } from '../../lib/table';
import type { Column } from './columns';
import { VolumeMenu } from './VolumeMenu';
import type { ListProps } from './VolumeTable';

// narrow is the media query for screens that show volumes as cards: a table would scroll sideways on them.
export const narrow = '(max-width: 480px)';

// gap is the space between cards, in pixels. tables.css has the same number.
const gap = 8;

// usualHeight is the height of a card in pixels until the page has measured it.
const usualHeight = 180;

// VolumeCards shows the same data as VolumeTable, one card below the other. The page scrolls, and draws only the
// visible cards.
export function VolumeCards({ volumes, columns, sort, onSort, selected, onSelect, act }: ListProps) {
  const list = useRef<HTMLUListElement>(null);
  const [top, setTop] = useState(0);
  useLayoutEffect(() => {
    const measure = () => setTop(list.current?.offsetTop ?? 0);
    measure();
    const observer = new ResizeObserver(measure); // the content above the cards may grow
    observer.observe(document.body);
    return () => observer.disconnect();
  }, []);
  const virtual = useWindowVirtualizer({ count: volumes.length, estimateSize: () => usualHeight, overscan: 6, gap, scrollMargin: top, getItemKey: (i) => volumes[i]?.name ?? i });
  const cards = virtual.getVirtualItems();
  const before = (cards[0]?.start ?? top) - top;
  const after = virtual.getTotalSize() - ((cards[cards.length - 1]?.end ?? top) - top);
  const all = volumes.length > 0 && volumes.every((v) => selected.has(v.name));
  return (
    <>
      <div className="toolbar">
        <SelectField label="Sort by" value={sort.column} options={columns.map((c) => [c.id, c.name] as const)} onChange={(column) => onSort({ ...sort, column })} />
        <Button onPress={() => onSort({ ...sort, descending: !sort.descending })}>{sort.descending ? 'Descending ↓' : 'Ascending ↑'}</Button>
        <CheckboxField
          isSelected={all}
          isIndeterminate={!all && volumes.some((v) => selected.has(v.name))}
          onChange={(on) => onSelect(on ? new Set(volumes.map((v) => v.name)) : new Set())}
        >
          Select all volumes that are shown
        </CheckboxField>
      </div>
      <ul className="volume-cards" ref={list} aria-label="Volumes" style={{ paddingTop: Math.max(0, before), paddingBottom: Math.max(0, after) }}>
        {cards.map((card) => {
          const v = volumes[card.index];
          if (v === undefined) return null;
          return (
            <li
              key={card.key}
              ref={virtual.measureElement}
              data-index={card.index}
              aria-setsize={volumes.length}
              aria-posinset={card.index + 1}
              className={selected.has(v.name) ? 'card selected' : 'card'}
            >
              <div className="head">
                <CheckboxField label={`Select ${fullNameOf(v)}`} isSelected={selected.has(v.name)} onChange={(on) => onSelect(toggled(selected, v.name, on))} />
                {columns.find((c) => c.id === 'name')?.cell(v)}
                <VolumeMenu volume={v} act={act} />
              </div>
              <Figures volume={v} columns={columns} />
            </li>
          );
        })}
      </ul>
    </>
  );
}

// Figures shows the columns of a volume that have a value.
function Figures({ volume, columns }: { volume: Volume; columns: readonly Column[] }) {
  const rows = columns.filter((c) => c.id !== 'name').map((c) => ({ ...c, value: c.cell(volume) }));
  return (
    <dl>
      {rows
        .filter((r) => r.value !== '')
        .map((r) => (
          <div key={r.id}>
            <dt>{r.name}</dt>
            <dd>{r.value}</dd>
          </div>
        ))}
    </dl>
  );
}
