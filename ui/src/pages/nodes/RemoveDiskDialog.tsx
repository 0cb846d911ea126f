import { useState } from 'react';
import { changedMeanwhile, useNodeChange } from '../../api/nodeChange';
import type { Disk, Node } from '../../api/types';
import { ConfirmName } from '../../components/ConfirmName';
import { FormDialog } from '../../components/FormDialog';
import { disksWithout } from '../../lib/node';

// RemoveDiskDialog takes a disk from a node. The API refuses one that takes or holds replicas.
export function RemoveDiskDialog({ node, name, disk, onClose }: { node: Node; name: string; disk: Disk; onClose: () => void }) {
  const [typed, setTyped] = useState('');
  const [path, setPath] = useState(disk.path); // what people see when they type the name
  const change = useNodeChange(node.name);
  const held = Object.keys(disk.scheduledReplica ?? {}).length;
  const make = (now: Node) => {
    const there = now.disks?.[name];
    if (there === undefined) return null;
    if (there.path !== path) {
      setPath(there.path);
      setTyped('');
      throw changedMeanwhile(`${name} was the disk at ${path} when this form was opened, and is that at ${there.path} now. Nothing was sent.`);
    }
    return { disks: disksWithout(now, name) };
  };
  return (
    <FormDialog
      title={`Remove ${name} of ${node.name}`}
      submit="Remove"
      danger
      onClose={onClose}
      onSubmit={() => change.mutate(make, { onSuccess: onClose })}
      isPending={change.isPending}
      isDisabled={typed !== name}
      error={change.error}
    >
      <p>The directory {path} stays as it is; nothing in it is used any more.</p>
      {disk.allowScheduling && <p className="warning">New replicas may be placed on it. Change that first: a disk that takes replicas is not removed.</p>}
      {held > 0 && <p className="warning">It holds {held} {held === 1 ? 'replica' : 'replicas'}. Empty it first.</p>}
      <ConfirmName wanted={name} value={typed} onChange={setTyped} />
    </FormDialog>
  );
}
