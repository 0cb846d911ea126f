import { localReplica } from '../lib/volume';
import type { ActionProps } from './actionProps';
import { AttachDialog } from './AttachDialog';
import { ChoiceDialog } from './ChoiceDialog';
import { DeleteDialog } from './DeleteDialog';
import { DetachDialog } from './DetachDialog';
import { ExpandDialog } from './ExpandDialog';
import { ReplicaCountDialog } from './ReplicaCountDialog';
import { SalvageDialog } from './SalvageDialog';
import { CancelExpansionDialog } from './CancelExpansionDialog';
import { TrimDialog } from './TrimDialog';
import type { VolumeAction } from './volumeActions';

// VolumeActionDialog is the dialog of one action, for one volume or for several.
export function VolumeActionDialog({ action, volumes, onClose }: ActionProps & { action: VolumeAction }) {
  const props = { volumes, onClose };
  switch (action) {
    case 'attach':
      return <AttachDialog {...props} />;
    case 'detach':
      return <DetachDialog {...props} />;
    case 'expand':
      return <ExpandDialog {...props} />;
    case 'cancelExpansion':
      return <CancelExpansionDialog {...props} />;
    case 'updateReplicaCount':
      return <ReplicaCountDialog {...props} />;
    case 'updateDataLocality':
      return (
        <ChoiceDialog
          {...props}
          title="Data locality"
          action="updateDataLocality"
          field="dataLocality"
          current={(v) => v.dataLocality}
          options={[
            ['disabled', 'disabled: replicas may be on any node'],
            ['best-effort', 'best-effort: a local replica, if possible'],
            ['strict-local', 'strict-local: one replica, always local'],
          ]}
          description={localReplica}
        />
      );
    case 'updateAccessMode':
      return (
        <ChoiceDialog
          {...props}
          title="Access mode"
          action="updateAccessMode"
          field="accessMode"
          current={(v) => v.accessMode}
          options={[
            ['rwo', 'rwo: one node at a time'],
            ['rwop', 'rwop: one pod at a time'],
            ['rwx', 'rwx: many nodes at a time, over NFS'],
          ]}
        />
      );
    case 'trimFilesystem':
      return <TrimDialog {...props} />;
    case 'salvage':
      return <SalvageDialog {...props} />;
    case 'delete':
      return <DeleteDialog {...props} />;
  }
}
