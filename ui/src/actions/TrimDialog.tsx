import { ChangeForm } from './ChangeForm';
import { actionLink, those, useForEach } from './useForEach';
import type { ActionProps } from './actionProps';

export function TrimDialog({ volumes, onClose }: ActionProps) {
  const change = useForEach(volumes, (v) => ({ method: 'POST', link: actionLink(v, 'trimFilesystem') }));
  return (
    <ChangeForm
      change={change}
      title={`Trim the file system of ${those(volumes)}`}
      submit="Trim"
      onClose={onClose}
    >
      <p>The disks get back the space of files that were deleted. Nothing that is stored is lost, and the volume is used on meanwhile.</p>
      <p>A trim that takes longer than 40 seconds goes on when this form has closed; an Event of the volume tells of the end.</p>
      <p role="status">{change.mutation.isPending && 'The file system is being trimmed …'}</p>
    </ChangeForm>
  );
}
