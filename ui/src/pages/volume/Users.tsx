import type { Volume } from '../../api/types';
import { claimText } from '../../lib/volume';

// requesters contains the texts for the types of tickets.
const requesters: Partial<Record<string, string>> = {
  'csi-attacher': 'for pods (csi-attacher)',
  'longhorn-api': 'manual (longhorn-api)',
  'share-manager-controller': 'for the share (share-manager-controller)',
};

// Users shows the claim and the pods of a volume, and the tickets for which it is attached.
export function Users({ volume: v }: { volume: Volume }) {
  const k = v.kubernetesStatus;
  const tickets = Object.values(v.volumeAttachment?.attachments ?? {});
  return (
    <section className="card" aria-labelledby="users">
      <h2 id="users">Used by</h2>
      <dl className="figures">
        <dt>PersistentVolume</dt>
        <dd>{k.pvName === '' ? 'none' : `${k.pvName}, ${k.pvStatus}`}</dd>
        <dt>Claim</dt>
        <dd>{claimText(v) || 'none'}</dd>
      </dl>
      <h3>Pods</h3>
      {(k.workloadsStatus ?? []).length === 0 ? (
        <p>No pod uses the volume.</p>
      ) : (
        <ul>
          {(k.workloadsStatus ?? []).map((w) => (
            <li key={w.podName}>
              {w.podName}, {w.podStatus}
              {w.workloadName !== '' && `, of ${w.workloadType} ${w.workloadName}`}
            </li>
          ))}
        </ul>
      )}
      <h3>Attachment requests</h3>
      {tickets.length === 0 ? (
        <p>There are no attachment requests.</p>
      ) : (
        <ul>
          {tickets.map((t) => (
            <li key={t.attachmentID}>
              {requesters[t.attachmentType] ?? t.attachmentType} on {t.nodeID}: {t.satisfied ? 'attached' : `waiting${reasonOf(t.conditions)}`}
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

function reasonOf(conditions: { message: string }[] | null): string {
  const message = (conditions ?? []).find((c) => c.message !== '')?.message;
  return message === undefined ? '' : `: ${message}`;
}
