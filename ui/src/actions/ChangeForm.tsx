import type { ReactNode } from 'react';
import { FormDialog } from '../components/FormDialog';
import type { ForEach } from './useForEach';

interface Props {
  change: ForEach;
  title: string;
  submit: string;
  onClose: () => void;
  // onDone is called when all volumes are changed. Without it, the dialog closes.
  onDone?: () => void;
  isDisabled?: boolean;
  danger?: boolean;
  fields?: readonly string[];
  children: ReactNode;
}

// ChangeForm is the dialog for a change of volumes. It closes when all volumes are changed. If the change of some
// volumes failed, submitting the form again changes only these.
export function ChangeForm({ change, onDone, ...form }: Props) {
  const { mutation, progress, stop } = change;
  return (
    <FormDialog
      {...form}
      onSubmit={() => mutation.mutate(undefined, { onSuccess: onDone ?? form.onClose })}
      isPending={mutation.isPending}
      error={mutation.error}
      {...(progress.total > 1 ? { steps: { ...progress, stop } } : {})}
    />
  );
}
