import { useState } from 'react';
import { useSnapshots } from '../../api/live';
import type { Snapshot, Volume } from '../../api/types';
import { Ago } from '../../components/Ago';
import { Badge } from '../../components/Badge';
import { Button } from '../../components/Button';
import { Read } from '../../components/Read';
import { bytes, timeOf } from '../../lib/format';
import { labelsText, snapshotsOf, stateOf } from '../../lib/snapshot';
import { DeleteSnapshotDialog, RevertDialog, TakeSnapshotDialog } from './SnapshotDialogs';

// Open is the open dialog. The component of the whole section holds it, because a row may disappear while the user
// fills in the form.
type Open = { act: 'take' } | { act: 'delete' | 'revert'; snapshot: Snapshot };

// Snapshots lists the snapshots of a volume, and offers what users can do with them.
export function Snapshots({ volume }: { volume: Volume }) {
  const query = useSnapshots();
  const [open, setOpen] = useState<Open | null>(null);
  const close = () => setOpen(null);
  const list = snapshotsOf(query.data ?? [], volume.name);
  return (
    <section className="card" aria-labelledby="snapshots">
      <div className="title">
        <h2 id="snapshots">Snapshots</h2>
        {volume.actions['snapshotCRCreate'] !== undefined && <Button onPress={() => setOpen({ act: 'take' })}>Take a snapshot …</Button>}
      </div>
      <Read query={query} what="snapshots">
        {() => (list.length === 0 ? <p>No snapshots.</p> : <Table volume={volume} list={list} setOpen={setOpen} />)}
      </Read>
      {open?.act === 'take' && <TakeSnapshotDialog volume={volume} onClose={close} />}
      {open?.act === 'delete' && <DeleteSnapshotDialog volume={volume} snapshot={open.snapshot} onClose={close} />}
      {open?.act === 'revert' && <RevertDialog volume={volume} snapshot={open.snapshot} list={list} onClose={close} />}
    </section>
  );
}

function Table({ volume, list, setOpen }: { volume: Volume; list: Snapshot[]; setOpen: (open: Open) => void }) {
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reachable by keyboard
    <div className="scroll" tabIndex={0} role="group" aria-label="Table of snapshots">
      <table className="table loose">
        <thead>
          <tr>
            <th scope="col">Name</th>
            <th scope="col">State</th>
            <th scope="col">Taken</th>
            <th scope="col" className="number">
              Size
            </th>
            <th scope="col">Labels</th>
            <th scope="col">
              <span className="hidden">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {list.map((s) => (
            <Row key={s.name} volume={volume} snapshot={s} setOpen={setOpen} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Row({ volume, snapshot: s, setOpen }: { volume: Volume; snapshot: Snapshot; setOpen: (open: Open) => void }) {
  const state = stateOf(s);
  const taken = timeOf(s.creationTime);
  return (
    <tr>
      <th scope="row">{s.name}</th>
      <td className="prose">
        <Badge tone={state.tone}>{state.text}</Badge>
        {state.why !== '' && <p className="small">{state.why}</p>}
      </td>
      <td className="since">{taken === null ? 'not yet' : <Ago date={taken} />}</td>
      <td className="number">{bytes(s.size)}</td>
      <td>{labelsText(s)}</td>
      <td className="since">
        {volume.actions['snapshotRevert'] !== undefined && !s.markRemoved && (
          <Button look="quiet" aria-label={`Return to ${s.name}`} onPress={() => setOpen({ act: 'revert', snapshot: s })}>
            Return …
          </Button>
        )}
        {!s.markRemoved && (
          <Button look="quiet" aria-label={`Delete ${s.name}`} onPress={() => setOpen({ act: 'delete', snapshot: s })}>
            Delete …
          </Button>
        )}
      </td>
    </tr>
  );
}
