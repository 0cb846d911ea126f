import type { ReactNode } from 'react';
import { Dialog, Form, Heading, Modal, ModalOverlay } from 'react-aria-components';
import type { ApiError } from '../api/http';
import { number } from '../lib/format';
import { Button } from './Button';
import { Progress } from './Meter';
import { Problem } from './Problem';

interface Props {
  title: string;
  onClose: () => void;
  onSubmit: () => void;
  submit: string;
  isPending?: boolean;
  isDisabled?: boolean;
  danger?: boolean;
  // error is shown in the dialog, unless it names one of the form's fields: then the field shows it.
  error?: ApiError | null;
  fields?: readonly string[];
  // steps: the change has several steps, and the dialog shows its progress.
  steps?: { tried: number; total: number; isStopping: boolean; stop: () => void };
  children: ReactNode;
}

// FormDialog asks for the input of one change. It stays open until the change has finished. If it closed, the change
// would continue, and its refusals would be lost.
export function FormDialog({ title, onClose, onSubmit, submit, isPending, isDisabled, danger, error, fields, steps, children }: Props) {
  const isAtField = error !== null && error !== undefined && (fields ?? []).includes(error.field);
  return (
    <ModalOverlay className="overlay" isOpen isDismissable={!isPending} isKeyboardDismissDisabled={isPending ?? false} onOpenChange={(open) => !open && onClose()}>
      <Modal className="modal">
        <Dialog className="dialog">
          <Heading slot="title">{title}</Heading>
          <Form
            className="form"
            onSubmit={(event) => {
              event.preventDefault();
              if (!isDisabled && !isPending) onSubmit();
            }}
          >
            {children}
            {isPending && steps && <Progress label={title} value={(100 * steps.tried) / Math.max(1, steps.total)} text={`${number(steps.tried)} of ${number(steps.total)}`} />}
            {error && !isAtField && <Problem error={error} />}
            <div className="actions">
              {isPending && steps ? (
                <Button onPress={steps.stop} isDisabled={steps.isStopping}>
                  Stop after this volume
                </Button>
              ) : (
                <Button onPress={onClose} isDisabled={isPending ?? false}>
                  Cancel
                </Button>
              )}
              {/* The disabled button is a separate element. A moment after a press, react-aria creates a click itself.
                  By then, the text that the user typed may have enabled the button. */}
              <Button key={isDisabled ? 'disabled' : 'enabled'} type="submit" look={danger ? 'danger' : 'primary'} isDisabled={(isDisabled ?? false) || (isPending ?? false)}>
                {submit}
              </Button>
            </div>
          </Form>
        </Dialog>
      </Modal>
    </ModalOverlay>
  );
}

// fieldError returns the API's text if it is about this field of a form, otherwise undefined.
export function fieldError(error: ApiError | null | undefined, field: string): string | undefined {
  return error && error.field === field ? error.message : undefined;
}
