import { useState } from 'react';
import { changedMeanwhile, useNodeChange } from '../../api/nodeChange';
import type { Disk, Node } from '../../api/types';
import { ConfirmName } from '../../components/ConfirmName';
import { FormDialog } from '../../components/FormDialog';
import { disksWithout } from '../../lib/node';

// RemoveDiskDialog removes a disk from a node. The API refuses to remove a disk that accepts or holds replicas.
export function RemoveDiskDialog({ node, name, disk, onClose }: { node: Node; name: string; disk: Disk; onClose: () => void }) {
  const [typed, setTyped] = useState('');
  const [path, setPath] = useState(disk.path); // the path that the user sees while typing the name
  const change = useNodeChange(node.name);
  const held = Object.keys(disk.scheduledReplica ?? {}).length;
  const make = (now: Node) => {
    const there = now.disks?.[name];
    if (there === undefined) return null;
    if (there.path !== path) {
      setPath(there.path);
      setTyped('');
      throw changedMeanwhile(`disk ${name} was at ${path} when this form was opened, and is at ${there.path} now. Nothing was sent. To remove the disk at ${there.path}, type its name again.`);
    }
    return { disks: disksWithout(now, name) };
  };
  return (
    <FormDialog
      title={`Remove disk ${name} of ${node.name}`}
      submit="Remove"
      danger
      onClose={onClose}
      onSubmit={() => change.mutate(make, { onSuccess: onClose })}
      isPending={change.isPending}
      isDisabled={typed !== name}
      error={change.error}
    >
      <p>Longhorn leaves the directory {path} as it is, and no longer uses its content.</p>
      {disk.allowScheduling && <p className="warning">Scheduling is enabled on this disk. Edit the disk and disable scheduling first: the API does not remove a disk that accepts new replicas.</p>}
      {held > 0 && <p className="warning">The disk holds {held} {held === 1 ? 'replica' : 'replicas'}. Evict {held === 1 ? 'it' : 'them'} first.</p>}
      <ConfirmName wanted={name} value={typed} onChange={setTyped} />
    </FormDialog>
  );
}
