import { ChangeForm } from './ChangeForm';
import { actionLink, those, useForEach } from './useForEach';
import type { ActionProps } from './actionProps';

export function CancelExpansionDialog({ volumes, onClose }: ActionProps) {
  const change = useForEach(volumes, (v) => ({ method: 'POST', link: actionLink(v, 'cancelExpansion') }));
  return (
    <ChangeForm
      change={change}
      title={`Cancel the expansion of ${those(volumes)}`}
      submit="Cancel the expansion"
      onClose={onClose}
    >
      <p>The volume keeps the size that its users see now.</p>
    </ChangeForm>
  );
}
