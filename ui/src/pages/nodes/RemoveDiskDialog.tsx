import { useState } from 'react';
import { useChange } from '../../api/live';
import type { Disk, Node } from '../../api/types';
import { ConfirmName } from '../../components/ConfirmName';
import { FormDialog } from '../../components/FormDialog';
import { disksWithout } from '../../lib/node';

// RemoveDiskDialog takes a disk from a node. The API refuses one that takes or holds replicas.
export function RemoveDiskDialog({ node, name, disk, onClose }: { node: Node; name: string; disk: Disk; onClose: () => void }) {
  const [typed, setTyped] = useState('');
  const change = useChange('nodes');
  const held = Object.keys(disk.scheduledReplica ?? {}).length;
  const link = node.actions['diskUpdate'] ?? `/v1/nodes/${encodeURIComponent(node.name)}?action=diskUpdate`;
  return (
    <FormDialog
      title={`Remove ${name} of ${node.name}`}
      submit="Remove"
      danger
      onClose={onClose}
      onSubmit={() => change.mutate({ method: 'POST', link, body: { disks: disksWithout(node, name) } }, { onSuccess: onClose })}
      isPending={change.isPending}
      isDisabled={typed !== name}
      error={change.error}
    >
      <p>The directory {disk.path} stays as it is; nothing in it is used any more.</p>
      {held > 0 && <p className="warning">It holds {held} replicas. Empty it first.</p>}
      <ConfirmName wanted={name} value={typed} onChange={setTyped} />
    </FormDialog>
  );
}
