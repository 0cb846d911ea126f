import type { ReactNode } from 'react';
import { Link } from 'wouter';
import type { Volume } from '../../api/types';
import { HealthBadge } from '../../components/HealthBadge';
import { LocalityMark } from '../../components/LocalityMark';
import { VolumeName } from '../../components/VolumeName';
import { bytes, dateTime, sizeOf, timeOf } from '../../lib/format';
import type { ColumnId } from '../../lib/table';
import { actualSizeOf, claimText, expansionOf, nodeOf, placed, podsOf, isGood, unset } from '../../lib/volume';

export interface Column {
  id: ColumnId;
  name: string;
  width: number; // in pixels, at least
  isNumber?: boolean;
  cell: (v: Volume) => ReactNode;
}

export const columns: readonly Column[] = [
  {
    id: 'name',
    name: 'Name',
    width: 260,
    cell: (v) => (
      <div className="volume-name">
        <Link href={`/volumes/${encodeURIComponent(v.name)}`}>
          <VolumeName volume={v} />
        </Link>
        <LocalityMark volume={v} />
      </div>
    ),
  },
  { id: 'health', name: 'State', width: 130, cell: (v) => <HealthBadge volume={v} /> },
  { id: 'size', name: 'Size', width: 90, isNumber: true, cell: sizeCell },
  { id: 'actual', name: 'Actual size', width: 90, isNumber: true, cell: (v) => bytes(actualSizeOf(v)) },
  { id: 'replicas', name: 'Replicas', width: 90, isNumber: true, cell: (v) => (v.state === 'attached' ? `${placed(v).filter(isGood).length} / ${v.numberOfReplicas}` : v.numberOfReplicas) },
  { id: 'node', name: 'Attached to', width: 130, cell: nodeOf },
  { id: 'claim', name: 'Claim', width: 200, cell: claimText },
  { id: 'pods', name: 'Pods', width: 180, cell: (v) => podsOf(v).join(', ') },
  { id: 'locality', name: 'Data locality', width: 110, cell: (v) => v.dataLocality || unset },
  { id: 'access', name: 'Access mode', width: 80, cell: (v) => v.accessMode || unset },
  {
    id: 'created',
    name: 'Created',
    width: 190,
    cell: (v) => {
      const date = timeOf(v.created);
      return date === null ? '' : dateTime(date);
    },
  },
];

// sizeCell shows the size of a volume. While the volume grows, it also shows the size that users get until then.
function sizeCell(v: Volume): string {
  const e = expansionOf(v);
  return e === null || e.offered === 0 ? bytes(sizeOf(v.size)) : `${bytes(e.offered)} → ${bytes(e.wanted)}`;
}

const key = 'longhorn-columns';
const usual: readonly ColumnId[] = ['name', 'health', 'size', 'actual', 'replicas', 'node'];

// storedColumns returns the columns that the user chose. The name is always included.
export function storedColumns(): ColumnId[] {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(key) ?? 'null');
    if (Array.isArray(stored)) return columns.map((c) => c.id).filter((id) => id === 'name' || stored.includes(id));
  } catch {
    // There is no choice, or it cannot be read.
  }
  return [...usual];
}

export function storeColumns(chosen: readonly ColumnId[]): void {
  try {
    localStorage.setItem(key, JSON.stringify(chosen));
  } catch {
    // Without storage, the choice lasts as long as the page.
  }
}
