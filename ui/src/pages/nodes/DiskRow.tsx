import { useState } from 'react';
import { Link } from 'wouter';
import { useCollection } from '../../api/live';
import type { Disk, Node } from '../../api/types';
import { Badge } from '../../components/Badge';
import { Button } from '../../components/Button';
import { Conditions } from '../../components/Conditions';
import { StackedMeter } from '../../components/Meter';
import { ofDisk, takesReplicas } from '../../lib/capacity';
import { bytes, number } from '../../lib/format';
import { claimOf } from '../../lib/volume';
import { DiskDialog } from './DiskDialog';
import { Moves } from './Moves';
import { RemoveDiskDialog } from './RemoveDiskDialog';

// DiskRow shows one disk: its space, its replicas, and why it accepts no replicas.
export function DiskRow({ name, disk, node }: { name: string; disk: Disk; node: Node }) {
  const [open, setOpen] = useState<'change' | 'remove' | null>(null);
  const c = ofDisk(disk);
  const takes = takesReplicas(node, disk);
  const held = Object.keys(disk.scheduledReplica ?? {}).sort();
  const why = ['Ready', 'Schedulable'].map((type) => disk.conditions[type]).find((x) => x !== undefined && x.status !== 'True' && x.message !== '');
  const emptied = disk.evictionRequested || node.evictionRequested ? disk.conditions['Emptied'] : undefined;
  return (
    <li className="disk">
      <div className="title">
        <h3>
          {name} <span className="small">{disk.path}</span> <Badge tone={takes ? 'good' : 'warn'}>{takes ? 'accepts new replicas' : 'accepts no new replicas'}</Badge>
        </h3>
        <div className="actions">
          <Button look="quiet" onPress={() => setOpen('change')} aria-label={`Edit disk ${name} of ${node.name}`}>
            Edit disk
          </Button>
          <Button look="quiet" onPress={() => setOpen('remove')} aria-label={`Remove disk ${name} of ${node.name}`}>
            Remove disk
          </Button>
        </div>
      </div>
      <StackedMeter
        label={`Space of ${name} on ${node.name}`}
        text={`${bytes(c.used)} of ${bytes(c.total)} used`}
        whole={c.total}
        parts={[
          { name: 'Used', value: c.used, className: 'used' },
          { name: 'Reserved', value: Math.min(c.reserved, c.available), className: 'reserved' },
        ]}
      />
      <p className="small">
        {bytes(c.used)} of {bytes(c.total)} used · {bytes(c.reserved)} reserved · {bytes(c.scheduled)} scheduled · tags: {(disk.tags ?? []).join(', ') || 'none'}
      </p>
      {why !== undefined && <p className="warning">{why.message}</p>}
      {emptied !== undefined && (
        <>
          <p role="status">
            <Badge tone={emptied.status === 'True' ? 'good' : 'busy'}>{emptied.status === 'True' ? 'eviction complete' : 'being evicted'}</Badge> {emptied.message}
          </p>
          <Moves replicas={disk.scheduledReplica ?? {}} name={`${name} of ${node.name}`} />
        </>
      )}
      <details>
        <summary>
          Replicas ({number(held.length)}) and conditions of {name}
        </summary>
        <Held replicas={disk.scheduledReplica ?? {}} />
        <Conditions conditions={disk.conditions} name={`Conditions of ${name} on ${node.name}`} />
      </details>
      {open === 'change' && <DiskDialog node={node} name={name} disk={disk} onClose={() => setOpen(null)} />}
      {open === 'remove' && <RemoveDiskDialog node={node} name={name} disk={disk} onClose={() => setOpen(null)} />}
    </li>
  );
}

function Held({ replicas }: { replicas: Record<string, number> }) {
  const volumes = useCollection('volumes');
  const owner = (replica: string) => volumes.data?.find((v) => (v.replicas ?? []).some((r) => r.name === replica));
  return (
    <ul>
      {Object.entries(replicas)
        .sort(([a], [b]) => a.localeCompare(b))
        .map(([replica, size]) => {
          const volume = owner(replica);
          return (
            <li key={replica}>
              {volume === undefined ? replica : <Link href={`/volumes/${encodeURIComponent(volume.name)}`}>{replica}</Link>}
              {volume !== undefined && claimOf(volume) !== '' && ` of ${claimOf(volume)}`}, {bytes(size)}
            </li>
          );
        })}
    </ul>
  );
}
