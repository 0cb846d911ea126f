// The resources of the REST API, with the fields that the page shows. A field that an older daemon may omit is
// optional.

export interface Resource {
  id: string;
  type: string;
  links: Record<string, string>;
  actions: Record<string, string>;
}

export interface Collection<T> {
  data: T[];
}

export interface Condition {
  type: string;
  status: string;
  lastTransitionTime: string;
  reason: string;
  message: string;
}

export interface Replica {
  name: string;
  hostId: string;
  running: boolean;
  diskID: string;
  diskPath: string;
  dataPath: string;
  mode: string;
  failedAt: string;
}

export interface Controller {
  name: string;
  hostId: string;
  running: boolean;
  size: string;
  actualSize: string;
  endpoint: string;
  isExpanding: boolean;
  lastExpansionError: string;
}

export interface RebuildStatus {
  replica: string;
  error: string;
  isRebuilding: boolean;
  progress: number;
  state: string;
  copyBytes?: number;
  partial?: boolean;
}

export interface Workload {
  podName: string;
  podStatus: string;
  workloadName: string;
  workloadType: string;
}

export interface KubernetesStatus {
  pvName: string;
  pvStatus: string;
  namespace: string;
  pvcName: string;
  lastPVCRefAt?: string;
  workloadsStatus: Workload[] | null;
}

export interface Attachment {
  attachmentID: string;
  attachmentType: string;
  nodeID: string;
  satisfied: boolean;
  conditions: Condition[] | null;
}

export interface Volume extends Resource {
  name: string;
  size: string;
  state: string;
  robustness: string;
  frontend: string;
  dataLocality: string;
  accessMode: string;
  numberOfReplicas: number;
  replicaAutoBalance: string;
  replicaSoftAntiAffinity: string;
  replicaZoneSoftAntiAffinity: string;
  replicaDiskSoftAntiAffinity: string;
  staleReplicaTimeout: number;
  diskSelector: string[] | null;
  nodeSelector: string[] | null;
  created: string;
  expansionRequired?: boolean;
  conditions: Record<string, Condition>;
  strictLocalNodes?: string[];
  ready: boolean;
  notReadyMessage: string;
  replicas: Replica[] | null;
  controllers: Controller[] | null;
  rebuildStatus: RebuildStatus[] | null;
  kubernetesStatus: KubernetesStatus;
  volumeAttachment?: { attachments: Record<string, Attachment> | null };
  shareEndpoint: string;
  shareState: string;
}

export interface DiskUpdate {
  path: string;
  diskType: string;
  diskDriver: string;
  allowScheduling: boolean;
  evictionRequested: boolean;
  storageReserved: number;
  tags: string[] | null;
}

export interface Disk extends DiskUpdate {
  conditions: Record<string, Condition>;
  storageAvailable: number;
  storageScheduled: number;
  storageMaximum: number;
  scheduledReplica: Record<string, number> | null;
  diskUUID: string;
  filesystemType?: string;
}

export interface NodeUpdate {
  allowScheduling: boolean;
  evictionRequested: boolean;
  tags: string[] | null;
}

export interface Node extends Resource, NodeUpdate {
  name: string;
  address: string;
  region: string;
  zone: string;
  conditions: Record<string, Condition>;
  disks: Record<string, Disk> | null;
  specVersion?: string;
}

export interface SettingDefinition {
  displayName: string;
  description: string;
  category: string;
  type: string;
  readOnly: boolean;
  default: string;
  dataEngineSpecific?: boolean;
  options?: string[];
  range?: { minimum?: number; maximum?: number };
  effect?: string;
}

export interface Setting extends Resource {
  name: string;
  value: string;
  valueInForce?: string;
  applied: boolean;
  definition: SettingDefinition;
}

export interface Step {
  text: string;
  command?: string;
}

// Finding is one deviation from the requested state.
export interface Finding extends Resource {
  object: { kind: string; name: string; node: string; volume: string };
  severity: 'error' | 'warning' | 'info';
  reason: string;
  what: string;
  why: string[] | null;
  next: Step[] | null;
}

// LonghornEvent is a Kubernetes Event about an object of Longhorn.
export interface LonghornEvent extends Resource {
  eventType: string;
  event: {
    involvedObject: { kind: string; name: string };
    reason: string;
    message: string;
    count: number;
    firstTimestamp: string;
    lastTimestamp: string;
  };
}

// Snapshot is the object of a snapshot of a volume. Times are empty while they are not known.
export interface Snapshot extends Resource {
  name: string;
  volume: string;
  crCreationTime: string;
  creationTime: string;
  parent: string;
  markRemoved: boolean;
  readyToUse: boolean;
  size: number;
  restoreSize: number;
  labels: Record<string, string> | null;
  error: string;
  conditions: Record<string, Condition> | null;
}

export interface Session {
  user: string;
  trustedNetwork: boolean;
}

// Kinds are the collections that the page reads.
export interface Kinds {
  volumes: Volume;
  nodes: Node;
  settings: Setting;
  findings: Finding;
  events: LonghornEvent;
  snapshotcrs: Snapshot;
}

export type Kind = keyof Kinds;
