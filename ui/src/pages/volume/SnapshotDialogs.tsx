import { useState } from 'react';
import { actionLink } from '../../actions/useForEach';
import { useChange } from '../../api/live';
import type { Snapshot, Volume } from '../../api/types';
import { ConfirmName } from '../../components/ConfirmName';
import { FormDialog, fieldError } from '../../components/FormDialog';
import { TextInput } from '../../components/TextInput';
import { bytes, dateTime, timeOf } from '../../lib/format';
import { fullNameOf } from '../../lib/names';
import { keptFromRevert, parseLabels } from '../../lib/snapshot';

// TakeSnapshotDialog requests a snapshot. Without a name, the API chooses one.
export function TakeSnapshotDialog({ volume, onClose }: { volume: Volume; onClose: () => void }) {
  const [name, setName] = useState('');
  const [text, setText] = useState('');
  const parsed = parseLabels(text);
  const labels = 'labels' in parsed ? parsed.labels : {};
  const change = useChange('snapshotcrs');
  const submit = () =>
    change.mutate({ method: 'POST', link: actionLink(volume, 'snapshotCRCreate'), body: { name: name.trim(), labels } }, { onSuccess: onClose });
  return (
    <FormDialog
      title={`Take a snapshot of ${fullNameOf(volume)}`}
      submit="Take the snapshot"
      onClose={onClose}
      onSubmit={submit}
      isPending={change.isPending}
      isDisabled={'wrong' in parsed}
      error={change.error}
      fields={['name', 'labels']}
    >
      <p>A snapshot keeps the present content of the volume, on the same disks. Pods can use the volume meanwhile. It is not a backup: it is lost with the disks.</p>
      {volume.state === 'detached' && <p>The volume is detached. Longhorn attaches it while the snapshot is taken.</p>}
      <TextInput label="Name" value={name} onChange={setName} description="Leave it empty for a name that Longhorn chooses." refusal={fieldError(change.error, 'name')} takesFocus />
      <TextInput
        label="Labels"
        value={text}
        onChange={setText}
        description="For example “app: db, nightly”"
        error={'wrong' in parsed ? `“${parsed.wrong}” is not a label: write “name: value” or “name”, without “=”` : undefined}
        refusal={fieldError(change.error, 'labels')}
      />
    </FormDialog>
  );
}

interface Props {
  volume: Volume;
  snapshot: Snapshot;
  onClose: () => void;
}

// DeleteSnapshotDialog says which space the deletion frees. The user types the name of the snapshot to confirm.
export function DeleteSnapshotDialog({ volume, snapshot: s, onClose }: Props) {
  const [typed, setTyped] = useState('');
  const change = useChange('volumes', 'snapshotcrs');
  const submit = () => change.mutate({ method: 'POST', link: actionLink(volume, 'snapshotCRDelete'), body: { name: s.name } }, { onSuccess: onClose });
  return (
    <FormDialog
      title={`Delete snapshot ${s.name} of ${fullNameOf(volume)}`}
      submit="Delete permanently"
      danger
      onClose={onClose}
      onSubmit={submit}
      isPending={change.isPending}
      isDisabled={typed !== s.name}
      error={change.error}
    >
      <p>
        The content of the volume at that time is lost. The present content of the volume and other snapshots stay. The deletion frees up to {bytes(s.size)} on the disk of each
        replica: the parts that were overwritten later.
      </p>
      <ConfirmName wanted={s.name} value={typed} onChange={setTyped} />
    </FormDialog>
  );
}

// RevertDialog returns a volume to a snapshot. The user types the name of the volume to confirm.
export function RevertDialog({ volume, snapshot: s, list, onClose }: Props & { list: readonly Snapshot[] }) {
  const [typed, setTyped] = useState('');
  const change = useChange('volumes', 'snapshotcrs');
  const taken = timeOf(s.creationTime);
  const kept = keptFromRevert(volume, list, s);
  const submit = () => change.mutate({ method: 'POST', link: actionLink(volume, 'snapshotRevert'), body: { name: s.name } }, { onSuccess: onClose });
  return (
    <FormDialog
      title={`Return ${fullNameOf(volume)} to snapshot ${s.name}`}
      submit="Return to the snapshot"
      danger
      onClose={onClose}
      onSubmit={submit}
      isPending={change.isPending}
      isDisabled={typed !== volume.name || kept !== ''}
      error={change.error}
    >
      <p>All data that was written to the volume since the snapshot{taken !== null && ` (${dateTime(taken)})`} is lost. The snapshot stays.</p>
      {kept !== '' && <p className="warning">Not possible now: {kept}.</p>}
      <ConfirmName wanted={volume.name} value={typed} onChange={setTyped} />
    </FormDialog>
  );
}
