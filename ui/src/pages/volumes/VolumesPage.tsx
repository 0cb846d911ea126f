import { useMemo, useState } from 'react';
import { Menu, MenuItem, MenuTrigger, Popover } from 'react-aria-components';
import { useSearch } from 'wouter';
import { useVolumeAction, type Act } from '../../actions/useVolumeAction';
import { actions } from '../../actions/volumeActions';
import { useCollection } from '../../api/live';
import type { Volume } from '../../api/types';
import { Button } from '../../components/Button';
import { Read } from '../../components/Read';
import { SelectField } from '../../components/SelectField';
import { TextInput } from '../../components/TextInput';
import { useMedia } from '../../components/useMedia';
import { number } from '../../lib/format';
import { filtered, pruned, sorted, type ColumnId, type Filter, type Sort } from '../../lib/table';
import { healths } from '../../lib/volume';
import { columns, storeColumns, storedColumns } from './columns';
import { CreateVolume } from './CreateVolume';
import { narrow, VolumeCards } from './VolumeCards';
import { VolumeTable } from './VolumeTable';

const names: Record<Filter['health'], string> = {
  all: 'All states', faulted: 'Faulted', degraded: 'Degraded', busy: 'In transition', healthy: 'Healthy', detached: 'Detached',
};

export function VolumesPage() {
  const volumes = useCollection('volumes');
  const [creating, setCreating] = useState(false);
  const [act, dialog] = useVolumeAction(volumes.data ?? []);
  return (
    <>
      <div className="title">
        <h1>Volumes</h1>
        <Button look="primary" onPress={() => setCreating(true)}>
          Create volume
        </Button>
      </div>
      <Read query={volumes} what="volumes">
        {(list) => <VolumeList volumes={list} act={act} />}
      </Read>
      {dialog}
      {creating && <CreateVolume onClose={() => setCreating(false)} />}
    </>
  );
}

function countOf(volumes: number): string {
  return `${number(volumes)} ${volumes === 1 ? 'volume' : 'volumes'}`;
}

function healthFrom(search: string): Filter['health'] {
  const asked = new URLSearchParams(search).get('health');
  return healths.find((h) => h === asked) ?? 'all';
}

function VolumeList({ volumes, act }: { volumes: Volume[]; act: Act }) {
  const search = useSearch();
  const List = useMedia(narrow) ? VolumeCards : VolumeTable;
  const [filter, setFilter] = useState<Filter>({ text: '', health: healthFrom(search) });
  const [sort, setSort] = useState<Sort>({ column: 'name', descending: false });
  const [shown, setShown] = useState<ColumnId[]>(storedColumns);
  const [selected, setSelected] = useState<Set<string>>(new Set());
  const there = pruned(selected, volumes);
  if (there !== selected) setSelected(there);
  const rows = useMemo(() => sorted(filtered(volumes, filter), sort), [volumes, filter, sort]);
  const chosen = rows.filter((v) => selected.has(v.name)); // without volumes that the filter hides
  return (
    <>
      <div className="toolbar">
        <TextInput label="Search" value={filter.text} onChange={(text) => setFilter({ ...filter, text })} type="search" />
        <SelectField label="State" value={filter.health} options={(['all', ...healths] as const).map((h) => [h, names[h]] as const)} onChange={(health) => setFilter({ ...filter, health })} />
        <MenuTrigger>
          <Button>Columns</Button>
          <Popover className="popover">
            <Menu
              className="listbox"
              selectionMode="multiple"
              selectedKeys={shown}
              disabledKeys={['name']}
              onSelectionChange={(keys) => {
                const next = columns.map((c) => c.id).filter((id) => id === 'name' || keys === 'all' || keys.has(id));
                setShown(next);
                storeColumns(next);
              }}
            >
              {columns.map((c) => (
                <MenuItem key={c.id} id={c.id} className="option">
                  {c.name}
                </MenuItem>
              ))}
            </Menu>
          </Popover>
        </MenuTrigger>
        <p className="small" role="status">
          {rows.length === volumes.length ? countOf(volumes.length) : `${number(rows.length)} of ${countOf(volumes.length)}`}
          {chosen.length > 0 && `, ${number(chosen.length)} selected`}
        </p>
        {chosen.length > 0 && <BulkMenu volumes={chosen} act={act} />}
      </div>
      {volumes.length === 0 ? (
        <p className="empty">There are no volumes yet. A claim with the StorageClass longhorn creates a volume. You can also create one with the button above.</p>
      ) : (
        <List volumes={rows} columns={columns.filter((c) => shown.includes(c.id))} sort={sort} onSort={setSort} selected={selected} onSelect={setSelected} act={act} />
      )}
    </>
  );
}

function BulkMenu({ volumes, act }: { volumes: Volume[]; act: Act }) {
  return (
    <MenuTrigger>
      <Button>Actions on selected volumes</Button>
      <Popover className="popover">
        <Menu
          className="listbox"
          onAction={(key) => {
            const action = actions.find((a) => a.id === key);
            if (action) act(action.id, volumes);
          }}
        >
          {actions
            .filter((a) => a.many)
            .map((a) => (
              <MenuItem key={a.id} id={a.id} className={a.danger ? 'option danger' : 'option'}>
                {a.name}
              </MenuItem>
            ))}
        </Menu>
      </Popover>
    </MenuTrigger>
  );
}
