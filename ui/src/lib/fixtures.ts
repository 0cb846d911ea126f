// Resources for tests, as the API sends them. A test sets only the fields that it needs.

import type { Controller, Disk, KubernetesStatus, LonghornEvent, Node, RebuildStatus, Replica, Snapshot, Volume, Workload } from '../api/types';

type Some<T> = { [K in keyof T]?: T[K] | undefined };

interface VolumeFields extends Omit<Some<Volume>, 'replicas' | 'controllers' | 'kubernetesStatus' | 'rebuildStatus'> {
  replicas?: Some<Replica>[];
  rebuildStatus?: Some<RebuildStatus>[];
  controllers?: Some<Controller>[];
  kubernetesStatus?: Omit<Some<KubernetesStatus>, 'workloadsStatus'> & { workloadsStatus?: Some<Workload>[] };
}

export function volume(name: string, fields: VolumeFields = {}): Volume {
  const base = {
    id: name, type: 'volume', links: { self: `/v1/volumes/${name}` }, actions: {}, name, size: '0', state: 'detached', robustness: 'unknown',
    frontend: 'blockdev', dataLocality: 'disabled', accessMode: 'rwo', numberOfReplicas: 3, created: '', conditions: {}, ready: true,
    notReadyMessage: '', replicas: [], controllers: [], rebuildStatus: [], shareEndpoint: '', shareState: '',
    kubernetesStatus: { pvName: '', pvStatus: '', namespace: '', pvcName: '', lastPVCRefAt: '', workloadsStatus: [] },
  };
  const all = { ...base, ...fields, kubernetesStatus: { ...base.kubernetesStatus, ...fields.kubernetesStatus } };
  return all as unknown as Volume;
}

export function disk(fields: Some<Disk> = {}): Disk {
  const base = {
    path: '/var/lib/longhorn', diskType: 'filesystem', diskDriver: '', allowScheduling: true, evictionRequested: false, storageReserved: 0, tags: [],
    conditions: { Ready: { status: 'True' }, Schedulable: { status: 'True' } }, storageAvailable: 0, storageScheduled: 0, storageMaximum: 0,
    scheduledReplica: {}, diskUUID: '',
  };
  return { ...base, ...fields } as unknown as Disk;
}

export function node(name: string, disks: Record<string, Disk>, fields: Some<Node> = {}): Node {
  const base = {
    id: name, type: 'node', links: {}, actions: {}, name, address: '', allowScheduling: true, evictionRequested: false, tags: [], region: '', zone: '',
    conditions: { Ready: { status: 'True' }, Schedulable: { status: 'True' } }, disks,
  };
  return { ...base, ...fields } as unknown as Node;
}

export function event(id: string, fields: { kind?: string; name?: string; last?: string } = {}): LonghornEvent {
  const { kind = 'Volume', name = 'v', last = '2030-01-01T00:00:00Z' } = fields;
  return {
    id, type: 'event', links: {}, actions: {}, eventType: 'Normal',
    event: { involvedObject: { kind, name }, reason: 'Any', message: 'any', count: 1, firstTimestamp: last, lastTimestamp: last },
  };
}

export function snapshot(name: string, fields: Some<Snapshot> = {}): Snapshot {
  const base = {
    id: name, type: 'snapshotCR', links: {}, actions: {}, name, volume: 'v', crCreationTime: '2030-01-01T00:00:00Z', creationTime: '2030-01-01T00:00:00Z',
    parent: '', markRemoved: false, readyToUse: true, size: 0, restoreSize: 0, labels: {}, error: '', conditions: {},
  };
  return { ...base, ...fields };
}
