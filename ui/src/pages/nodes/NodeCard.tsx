import { useState } from 'react';
import type { Node } from '../../api/types';
import { Badge } from '../../components/Badge';
import { Button } from '../../components/Button';
import { Conditions } from '../../components/Conditions';
import { isTrue } from '../../lib/capacity';
import { refusals } from '../../lib/node';
import { DiskDialog } from './DiskDialog';
import { DiskRow } from './DiskRow';
import { NodeDialog } from './NodeDialog';

// NodeCard shows one node with its disks.
export function NodeCard({ node }: { node: Node }) {
  const [editing, setEditing] = useState(false);
  const [adding, setAdding] = useState(false);
  const ready = isTrue(node.conditions, 'Ready');
  const schedulable = node.conditions['Schedulable'];
  const disks = Object.entries(node.disks ?? {}).sort(([a], [b]) => a.localeCompare(b));
  return (
    <section className="card" id={node.name} aria-labelledby={`node-${node.name}`}>
      <div className="title">
        <h2 id={`node-${node.name}`}>
          {node.name} <Badge tone={ready ? 'good' : 'bad'}>{ready ? 'ready' : 'not ready'}</Badge>{' '}
          {!node.allowScheduling && <Badge tone="idle">scheduling disabled</Badge>} {node.evictionRequested && <Badge tone="busy">being evicted</Badge>}{' '}
          {schedulable?.reason === 'KubernetesNodeCordoned' && schedulable.status === 'False' && <Badge tone="idle">cordoned</Badge>}
        </h2>
        <div className="actions">
          <Button onPress={() => setEditing(true)} aria-label={`Edit node ${node.name}`}>
            Edit node
          </Button>
          <Button onPress={() => setAdding(true)} aria-label={`Add disk to ${node.name}`}>
            Add disk
          </Button>
        </div>
      </div>
      <p className="small">
        {node.zone !== '' && `zone ${node.zone} · `}
        {node.region !== '' && `region ${node.region} · `}
        tags: {(node.tags ?? []).join(', ') || 'none'}
      </p>
      {!ready && node.conditions['Ready'] && <p className="warning">{node.conditions['Ready'].message}</p>}
      {ready && schedulable?.status === 'False' && <p className="warning">{schedulable.message}. Its disks accept no new replicas.</p>}
      {refusals(node).map((c) => (
        <p key={c.type} className="warning" role="status">
          {c.type}: {c.message}
        </p>
      ))}
      {disks.length === 0 ? (
        <p>The node has no disks.</p>
      ) : (
        <ul className="disks">
          {disks.map(([name, disk]) => (
            <DiskRow key={name} name={name} disk={disk} node={node} />
          ))}
        </ul>
      )}
      <details>
        <summary>Conditions of {node.name}</summary>
        <Conditions conditions={node.conditions} name={`Conditions of ${node.name}`} />
      </details>
      {editing && <NodeDialog node={node} onClose={() => setEditing(false)} />}
      {adding && <DiskDialog node={node} onClose={() => setAdding(false)} />}
    </section>
  );
}
