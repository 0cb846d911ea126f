import type { ReactNode } from 'react';
import type { Volume } from '../../api/types';
import { ExpansionProgress } from '../../components/ExpansionProgress';
import { bytes, dateTime, sizeOf, timeOf } from '../../lib/format';
import { actualSizeOf, isGood, lacksLocalReplica, localityReason, localReplicaFollows, nodeOf, placed, unset } from '../../lib/volume';

// Facts shows the observed and the requested properties of a volume.
export function Facts({ volume: v }: { volume: Volume }) {
  const created = timeOf(v.created);
  const engine = v.controllers?.[0];
  const rows: [string, ReactNode][] = [
    ['State', `${v.state === '' ? 'new' : v.state}, ${v.robustness === 'unknown' ? 'health unknown' : v.robustness}`],
    ['Ready for pods', v.ready ? 'yes' : `no: ${v.notReadyMessage}`],
    ['Size', sizeText(v)],
    ['Actual size', bytes(actualSizeOf(v))],
    ['Replicas', v.state === 'attached' ? `${placed(v).filter(isGood).length} of ${v.numberOfReplicas} healthy` : v.numberOfReplicas],
    ['Data locality', localityText(v)],
    ['Access mode', v.accessMode || unset],
    ['Frontend', v.frontend],
    ['Attached to', nodeOf(v) || 'no node'],
    ['Device', engine?.endpoint || 'none'],
    ['Node tags', (v.nodeSelector ?? []).join(', ') || 'any'],
    ['Disk tags', (v.diskSelector ?? []).join(', ') || 'any'],
    ['Created', created === null ? '' : dateTime(created)],
  ];
  if (v.shareState !== '' || v.accessMode === 'rwx') {
    rows.splice(8, 0, ['Share', v.shareState || 'stopped'], ['Share endpoint', v.shareEndpoint || 'none']);
  }
  return (
    <section className="card" aria-labelledby="facts">
      <h2 id="facts">Volume</h2>
      <dl className="figures">
        {rows.map(([name, value]) => (
          <Row key={name} name={name}>
            {value}
          </Row>
        ))}
      </dl>
    </section>
  );
}

function Row({ name, children }: { name: string; children: ReactNode }) {
  return (
    <>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </>
  );
}

function sizeText(v: Volume): ReactNode {
  return v.expansionRequired === true ? <ExpansionProgress volume={v} /> : bytes(sizeOf(v.size));
}

function localityText(v: Volume): ReactNode {
  if (!lacksLocalReplica(v)) return v.dataLocality || unset;
  return (
    <>
      {v.dataLocality} <span className="warning">⚠ no healthy replica on {nodeOf(v)}: {localityReason(v) || localReplicaFollows}</span>
    </>
  );
}
