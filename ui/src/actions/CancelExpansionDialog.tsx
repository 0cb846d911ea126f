import { FormDialog } from '../components/FormDialog';
import { actionLink, those, useForEach } from './useForEach';
import type { ActionProps } from './VolumeActionDialog';

export function CancelExpansionDialog({ volumes, onClose }: ActionProps) {
  const change = useForEach(volumes, (v) => ({ method: 'POST', link: actionLink(v, 'cancelExpansion') }));
  return (
    <FormDialog
      title={`Cancel the expansion of ${those(volumes)}`}
      submit="Cancel the expansion"
      onClose={onClose}
      onSubmit={() => change.mutate(undefined, { onSuccess: onClose })}
      isPending={change.isPending}
      error={change.error}
    >
      <p>The volume keeps the size that its users see now.</p>
    </FormDialog>
  );
}
