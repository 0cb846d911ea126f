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
  // error is shown unless it names one of the form's fields, where it stands then.
  error?: ApiError | null;
  fields?: readonly string[];
  // steps: the change has many, and shows while it is under way how far it is.
  steps?: { tried: number; total: number; isStopping: boolean; stop: () => void };
  children: ReactNode;
}

// FormDialog asks for what one change needs. It stays while the change is under way: that would go on, and its refusals would be lost.
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
                  Stop after this one
                </Button>
              ) : (
                <Button onPress={onClose} isDisabled={isPending ?? false}>
                  Cancel
                </Button>
              )}
              {/* A button of its own while it is disabled: react-aria ends a press with a click of its own, a moment later, by which time what was typed may have enabled the button. */}
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

// fieldError is the API's text for one field of a form; undefined if it names another one, or none.
export function fieldError(error: ApiError | null | undefined, field: string): string | undefined {
  return error && error.field === field ? error.message : undefined;
}
